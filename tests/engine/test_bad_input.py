"""Bad input: a typed error that names the thing and the way out; the store stays usable and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsmstate import EpochError, Options, SchemaError, Side, StateStore, StoreClosedError
from lsmstate.keys import TS_MAX
from lsmstate.sstable.cache import FileCache
from tests.support.states import PATH, World, batch, rows_of, sides

STRICT = pa.schema([pa.field("k", pa.int64()), pa.field("ts", pa.int64()), pa.field("v", pa.string(), nullable=False)])


@pytest.fixture
def world() -> Iterator[World]:
    kinds = [*sides(1), Side("strict", STRICT, ["k"], "ts")]
    with World(kinds) as world:
        yield world


@pytest.fixture
def store(world: World) -> StateStore:
    store = world.open()
    store.append(0, batch((1, 1, "a")))
    store.snapshot_epoch(1)
    store.append(0, batch((1, 2, "b")))
    return store


def columns(**given: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(*told) for name, told in given.items()})


INT, TEXT = pa.int64(), pa.string()
Act = Callable[[StateStore], object]
BATCHES: dict[str, tuple[int, Any, str]] = {
    "missing column": (0, columns(k=([1], INT), ts=([1], INT)), r"side 'side0'.*missing 'v'"),
    "unknown column": (0, columns(k=([1], INT), ts=([1], INT), v=(["a"], TEXT), w=([1], INT)), "unknown 'w'"),
    "wrong type": (
        0,
        columns(k=([1], INT), ts=([1.5], pa.float64()), v=(["a"], TEXT)),
        "'ts' is double instead of int64",
    ),
    "narrow key": (0, columns(k=([1], pa.int32()), ts=([1], INT), v=(["a"], TEXT)), "'k' is int32 instead of int64"),
    "NULL time": (0, batch((1, None, "a"), (1, 1, "b")), r"column 'ts' holds 1 NULLs and may hold none; filter"),
    "NULL in a non-nullable column": (1, batch((1, 1, None)), r"side 'strict': column 'v' holds 1 NULLs"),
    "rows of Python": (0, [{"k": 1, "ts": 1, "v": "a"}], "a pyarrow RecordBatch or Table is needed, not list"),
    "None": (0, None, "not NoneType"),
    "repeated name": (
        0,
        pa.RecordBatch.from_arrays([pa.array([1])] * 4, names=["k", "ts", "v", "v"]),
        "repeats a column",
    ),
}


@pytest.mark.parametrize("case", BATCHES)
def test_batch_that_does_not_fit_is_refused(world: World, store: StateStore, case: str) -> None:
    side, given, message = BATCHES[case]
    check_refused(world, store, lambda store: store.append(side, given), SchemaError, message)


def test_bad_part_of_a_table_refuses_the_whole_table(world: World, store: StateStore) -> None:
    table = pa.Table.from_batches([batch((5, 5, "x")), batch((5, None, "y"))])
    check_refused(world, store, lambda store: store.append(0, table), SchemaError, "'ts' holds 1 NULLs")


CALLS: dict[str, tuple[Act, type[Exception], str]] = {
    "append to an unknown side": (lambda s: s.append(2, batch()), SchemaError, r"no side 2; there are 0 \(side0\), 1"),
    "negative side": (lambda s: s.scan(-1), SchemaError, "no side -1"),
    "side by name": (lambda s: s.scan("side0"), SchemaError, "no side 'side0'"),  # type: ignore[arg-type]
    "side as a flag": (lambda s: s.remove(True, 0, 1), SchemaError, "no side True"),
    "probe of an unknown side": (lambda s: s.probe(7, batch()), SchemaError, "no side 7"),
    "probe without the time": (lambda s: s.probe(0, columns(k=([1], INT))), SchemaError, "missing 'ts'"),
    "probe with NULL time": (lambda s: s.probe(0, batch((1, None, "a"))), SchemaError, "'ts' holds 1 NULLs"),
    "probe upside down": (lambda s: s.probe(0, batch(), 5, 4), ValueError, r"lower \(5\) is above upper \(4\)"),
    "remove upside down": (lambda s: s.remove(0, 5, 5), ValueError, "start < end"),
    "remove beyond time": (lambda s: s.remove(0, 0, TS_MAX + 2), ValueError, "microseconds"),
    "watermark beyond time": (lambda s: s.advance_watermark(TS_MAX + 1), ValueError, "microseconds"),
    "watermark as a datetime": (lambda s: s.advance_watermark(datetime.now()), ValueError, "microseconds"),  # type: ignore[arg-type]
    "epoch 0": (lambda s: s.prepare(0), EpochError, "from 1 to"),
    "epoch as text": (lambda s: s.commit("2"), EpochError, "whole numbers"),  # type: ignore[arg-type]
    "epoch as a float": (lambda s: s.snapshot_epoch(2.0), EpochError, "whole numbers"),  # type: ignore[arg-type]
    "epoch too large": (lambda s: s.prepare(10**12), EpochError, "from 1 to 999999999999"),
    "epoch going back": (lambda s: s.prepare(1), EpochError, "epoch 1 is not after 1.*go forward"),
    "commit of nothing": (lambda s: s.commit(2), EpochError, r"call prepare\(2\) first"),
    "abort of nothing": (lambda s: s.abort(2), EpochError, "nothing to abort"),
    "abort of what is committed": (lambda s: s.abort(1), EpochError, "nothing to abort"),
    "opening no epoch": (lambda s: s.at_epoch(9), EpochError, "no epoch 9; those that can be opened are: 1"),
    "restoring no epoch": (lambda s: s.restore(9), EpochError, "no epoch 9"),
    "branching no epoch": (lambda s: s.branch(9, "/b"), EpochError, "no epoch 9"),
    "meta that JSON cannot hold": (lambda s: s.prepare(2, meta={"x": object()}), ValueError, "meta"),
    "meta that is no object": (lambda s: s.prepare(2, meta=[1, 2]), ValueError, "meta"),  # type: ignore[arg-type]
}
NOT_TIMES = [1.5, "1", timedelta(seconds=1), datetime(2024, 1, 1)]
for wrong in NOT_TIMES:
    kind = type(wrong).__name__
    CALLS[f"scan from a {kind}"] = (lambda s, t=wrong: list(s.scan(0, start=t)), ValueError, "microseconds")
    CALLS[f"scan to a {kind}"] = (lambda s, t=wrong: list(s.scan(0, end=t)), ValueError, "microseconds")
    CALLS[f"probe from a {kind}"] = (
        lambda s, t=wrong: list(s.probe(0, batch((1, 1, "x")), lower=t)),
        ValueError,
        "microseconds",
    )
    CALLS[f"remove from a {kind}"] = (lambda s, t=wrong: s.remove(0, t, TS_MAX), ValueError, "microseconds")


@pytest.mark.parametrize("case", CALLS)
def test_call_that_makes_no_sense_is_refused(world: World, store: StateStore, case: str) -> None:
    act, kind, message = CALLS[case]
    check_refused(world, store, act, kind, message)


def check_refused(world: World, store: StateStore, act: Act, kind: type[Exception], message: str) -> None:
    """The error is the documented one, nothing was written, and the store goes on."""
    before = world.fs.tree()
    with pytest.raises(kind, match=message):
        act(store)
    assert world.fs.tree() == before
    assert rows_of(store.scan(0)) == [(1, 1, "a"), (1, 2, "b")]
    assert rows_of(store.scan(1)) == []
    store.snapshot_epoch(2)
    assert rows_of(world.open().scan(0)) == [(1, 1, "a"), (1, 2, "b")]


@pytest.mark.parametrize("number", [np.int64(2), np.int32(2), np.uint8(2)], ids=lambda n: type(n).__name__)
def test_numpy_times_are_taken_or_refused_but_never_harm_the_epoch(
    world: World, store: StateStore, number: Any
) -> None:
    for act in (lambda: store.remove(0, number, TS_MAX), lambda: store.advance_watermark(number)):
        try:
            act()
        except ValueError:
            continue
    seen = rows_of(store.scan(0))
    store.snapshot_epoch(2)
    assert rows_of(world.open().scan(0)) == seen


CLOSED: dict[str, Act] = {
    "append": lambda s: s.append(0, batch((1, 1, "x"))),
    "remove": lambda s: s.remove(0, 0, 1),
    "advance_watermark": lambda s: s.advance_watermark(1),
    "scan": lambda s: s.scan(0),
    "probe": lambda s: s.probe(0, batch()),
    "snapshot": lambda s: s.snapshot(),
    "at_epoch": lambda s: s.at_epoch(1),
    "prepare": lambda s: s.prepare(2),
    "commit": lambda s: s.commit(2),
    "abort": lambda s: s.abort(2),
    "snapshot_epoch": lambda s: s.snapshot_epoch(2),
    "restore": lambda s: s.restore(1),
    "branch": lambda s: s.branch(1, "/b"),
    "epochs": lambda s: s.epochs(),
    "stats": lambda s: s.stats(),
    "verify": lambda s: s.verify(),
}


@pytest.mark.parametrize("call", CLOSED)
def test_closed_store_refuses(world: World, store: StateStore, call: str) -> None:
    store.close()
    store.close()
    before = world.fs.tree()
    with pytest.raises(StoreClosedError, match="open it again"):
        CLOSED[call](store)
    assert world.fs.tree() == before


@pytest.mark.parametrize("call", ["append", "remove", "advance_watermark", "prepare", "commit", "abort", "restore"])
def test_read_only_handle_refuses_to_write(world: World, store: StateStore, call: str) -> None:
    reader = world.open(read_only=True)
    before = world.fs.tree()
    with pytest.raises(StoreClosedError, match="read_only=False"):
        CLOSED[call](reader)
    assert world.fs.tree() == before
    assert rows_of(reader.scan(0)) == [(1, 1, "a")]


@pytest.mark.parametrize("call", ["append", "scan", "prepare", "snapshot", "verify"])
def test_child_of_a_fork_refuses_a_store_opened_before(tmp_path: Any, call: str) -> None:
    with StateStore.open(tmp_path / "state", sides()) as store:
        store.append(0, batch((1, 1, "a")))
        store.snapshot_epoch(1)
        child = os.fork()
        if not child:
            try:
                CLOSED[call](store)
            except StoreClosedError as error:
                os._exit(0 if "open it again in this process" in str(error) else 1)
            except BaseException:
                os._exit(2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.snapshot_epoch(2)
        assert rows_of(store.scan(0)) == [(1, 1, "a")]


@pytest.mark.parametrize("name", ["memtable_bytes", "retain", "batch_rows"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "10", None, True])
def test_options_without_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"Options\.{name} must be a whole number of at least 1"):
        Options(**{name: value})


@pytest.mark.parametrize("attempt", ["Task_1", "../x", "a/b", "a~b", "", "x" * 33, "ä"])
def test_attempt_that_cannot_be_a_file_name_is_refused(world: World, attempt: str) -> None:
    before = world.fs.tree()
    with pytest.raises(ValueError, match="attempt"):
        world.open(attempt=attempt)
    assert world.fs.tree() == before


def test_shared_cache_is_used_even_while_it_is_empty(world: World) -> None:
    cache = FileCache()
    with StateStore.open(PATH, sides(), fs=world.fs, pool=world.pool, cache=cache) as store:
        store.append(0, batch((1, 1, "a")))
        store.snapshot_epoch(1)
        assert rows_of(store.scan(0)) == [(1, 1, "a")]
        assert len(cache) == 1


def test_errors_never_show_values_of_rows(world: World, store: StateStore) -> None:
    secret = "secret-value"
    with pytest.raises(SchemaError) as error:
        store.append(0, columns(k=([1], INT), ts=([secret], TEXT), v=([secret], TEXT)))
    assert secret not in str(error.value)
