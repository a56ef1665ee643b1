"""The probe: equal keys, near times, every pair once, in bounded batches, without reading what cannot match."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from lsmstate import Options, SchemaError, Side, StateStore
from lsmstate.engine.probe import _Found
from lsmstate.hashing import hash_keys
from lsmstate.keys import TS_MAX, TS_MIN
from tests.support.loops import loops  # noqa: F401  # each test runs with both
from tests.support.model import Model
from tests.support.states import SCHEMA, US, World, batch, plain, rows_of, sides


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def pairs(
    store: StateStore, *asked: tuple[object, ...], lower: int | None = None, upper: int | None = None
) -> set[object]:
    """(value, probe_index) of all that is found."""
    found = [(row[2], row[3]) for row in plain(store.probe(0, batch(*asked), lower, upper))]
    assert len(set(found)) == len(found)
    return set(found)


def test_probe_of_an_empty_store_finds_nothing(world: World) -> None:
    store = world.open()
    assert list(store.probe(0, batch((1, 0, None)))) == []
    store.snapshot_epoch(1)
    assert list(store.probe(0, batch((1, 0, None)))) == []


def test_probe_with_no_rows_finds_nothing(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 0, "a")))
    assert list(store.probe(0, batch())) == []
    assert list(store.probe(0, pa.Table.from_batches([], SCHEMA))) == []


def test_probe_includes_both_ends_of_the_interval(world: World) -> None:
    store = world.open()
    store.append(0, batch(*[(1, ts, str(ts)) for ts in (89, 90, 100, 110, 111)]))
    assert pairs(store, (1, 100, None), lower=-10, upper=10) == {("90", 0), ("100", 0), ("110", 0)}
    assert pairs(store, (1, 100, None), lower=0, upper=0) == {("100", 0)}
    assert pairs(store, (1, 100, None), lower=10) == {("110", 0), ("111", 0)}
    assert pairs(store, (1, 100, None), upper=-10) == {("89", 0), ("90", 0)}


@pytest.mark.parametrize("epoch", [False, True], ids=["in-memory", "in-a-file"])
def test_probe_arithmetic_is_exact_at_the_ends_of_time(world: World, epoch: bool) -> None:
    store = world.open()
    store.append(0, batch((1, TS_MIN, "first"), (1, 0, "zero"), (1, TS_MAX, "last")))
    if epoch:
        store.snapshot_epoch(1)
    assert pairs(store, (1, TS_MAX, None), lower=0) == {("last", 0)}
    assert pairs(store, (1, TS_MAX - 5, None), lower=10) == set()
    assert pairs(store, (1, TS_MIN + 5, None), upper=-10) == set()
    assert pairs(store, (1, 5, None), lower=-(10**30)) == {("first", 0), ("zero", 0), ("last", 0)}
    assert pairs(store, (1, 5, None), upper=10**30) == {("first", 0), ("zero", 0), ("last", 0)}
    assert pairs(store, (1, 5, None), lower=10**30) == set()
    assert pairs(store, (1, TS_MAX, None), lower=TS_MIN - TS_MAX, upper=TS_MIN - TS_MAX) == {("first", 0)}


def test_null_keys_match_nothing(world: World) -> None:
    store = world.open()
    store.append(0, batch((None, 1, "null"), (1, 1, "one")))
    assert pairs(store, (None, 1, None), (1, 1, None)) == {("one", 1)}


def test_null_in_one_of_two_keys_matches_nothing() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("ts", pa.int64())])
    kinds = [Side(name, schema, ["a", "b"], "ts") for name in ("left", "right")]
    rows = [(1, None, 0), (None, "x", 0), (None, None, 0), (1, "x", 0)]
    with World(kinds) as world:
        store = world.open()
        store.append(0, batch(*rows, schema=schema))
        assert rows_of(store.probe(0, batch(*rows, schema=schema))) == [(1, "x", 0, 3)]


def test_every_probe_gets_its_own_pairs(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 5, "a"), (1, 6, "b"), (2, 5, "c")))
    store.append(0, batch((1, 5, "d")))
    asked = [(2, 0, None), (1, 0, None), (9, 0, None), (1, 1, None)]
    assert pairs(store, *asked, lower=5, upper=5) == {("c", 0), ("a", 1), ("d", 1), ("b", 3)}


def test_probe_index_counts_through_the_chunks_of_a_table(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 5, "a"), (2, 5, "b")))
    table = pa.Table.from_batches([batch((9, 0, None)), batch(), batch((1, 0, None), (2, 0, None))])
    assert rows_of(store.probe(0, table)) == [(1, 5, "a", 1), (2, 5, "b", 2)]


def test_probe_needs_only_keys_and_time(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 5, "a")))
    asked = pa.table({"other": [1.5], "ts": pa.array([0]), "k": pa.array([1])})
    assert rows_of(store.probe(0, asked)) == [(1, 5, "a", 0)]


def test_probe_of_three_sides_says_by_whose_rows() -> None:
    wide = Side("wide", pa.schema([("at", pa.int64()), ("key", pa.int64())]), ["key"], "at", bucket=10 * US)
    with World([*sides(2), wide]) as world:
        store = world.open()
        store.append(0, batch((1, 5, "a"), (2, 5, "b")))
        asked = batch((0, 2), schema=wide.schema)
        assert rows_of(store.probe(0, asked, by=2)) == [(2, 5, "b", 0)]
        store.append(2, asked)
        assert rows_of(store.probe(2, batch((2, 0, None)), by=0)) == [(0, 2, 0)]
        with pytest.raises(SchemaError, match="by="):
            store.probe(0, asked)
        with pytest.raises(SchemaError, match="no side 3"):
            store.probe(0, asked, by=3)


def test_side_can_be_probed_by_its_own_rows(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 5, "a"), (1, 6, "b")))
    assert rows_of(store.probe(0, batch((1, 5, "a")), 1, None, by=0)) == [(1, 6, "b", 0)]


@pytest.mark.parametrize("spilled", [False, True])
def test_probe_asks_every_run(world: World, spilled: bool) -> None:
    store = world.open(memtable_bytes=1 if spilled else 1 << 30)
    for epoch in range(1, 41):
        store.append(0, batch(*[(key, epoch * 25, f"{key}/{epoch}") for key in range(5)]))
        if epoch % 2:
            store.snapshot_epoch(epoch)
    assert store.stats().sides[0].runs > 20
    assert pairs(store, (3, 0, None)) == {(f"3/{epoch}", 0) for epoch in range(1, 41)}
    assert pairs(store, (3, 500, None), lower=-25, upper=25) == {("3/19", 0), ("3/20", 0), ("3/21", 0)}


def test_probe_skips_what_was_removed_or_retired() -> None:
    with World(sides(retention=20)) as world:
        store = world.open()
        store.append(0, batch(*[(1, ts, str(ts)) for ts in (10, 20, 30, 31, 40)]))
        store.remove(0, 31, 40)
        store.advance_watermark(40)
        assert pairs(store, (1, 0, None)) == {("30", 0), ("40", 0)}
        store.snapshot_epoch(1)
        assert pairs(store, (1, 0, None)) == {("30", 0), ("40", 0)}


FEW = [1, 2, 3]


@pytest.mark.parametrize("distinct", FEW)
def test_colliding_hashes_are_told_apart_by_key(monkeypatch: pytest.MonkeyPatch, distinct: int) -> None:
    def collide(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
        return hash_keys(columns) % np.uint64(distinct)

    for module in ("lsmstate.engine.intake", "lsmstate.engine.verify"):
        monkeypatch.setattr(f"{module}.hash_keys", collide)
    monkeypatch.setattr("lsmstate.engine.intake.tells_apart", lambda columns, hashes: False)
    kinds = sides()
    rng = np.random.default_rng(distinct)
    rows = [(int(k), int(ts), f"{n}") for n, (k, ts) in enumerate(rng.integers(0, [20, 60], (400, 2)))]
    rows += [(None, 5, "null")]
    asked = [(int(k), int(ts), None) for k, ts in rng.integers(0, [25, 60], (60, 2))]
    model = Model.empty(kinds).appended(0, rows)
    with World(kinds) as world:
        store = world.open()
        for part in range(4):
            store.append(0, batch(*rows[part::4]))
            if part < 3:
                store.snapshot_epoch(part + 1)
        found = Counter(plain(store.probe(0, batch(*asked), -9, 9)))
        assert found == model.probe(0, 1, asked, -9, 9)
        assert store.verify() == []


def test_number_with_the_hash_of_null_does_not_meet_it(world: World) -> None:
    store = world.open()
    number = 7997738013315500161
    assert hash_keys([pa.array([number, None])]).tolist() == [42, 42]
    store.append(0, batch((None, 5, "null"), (number, 5, "number"), *[(None, 5, "null")] * 100))
    assert pairs(store, (number, 5, None)) == {("number", 0)}
    store.snapshot_epoch(1)
    assert pairs(store, (number, 5, None)) == {("number", 0)}


def test_batch_that_asks_and_is_appended_is_hashed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def counted(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
        hashed.append(len(columns[0]))
        return hash_keys(columns)

    monkeypatch.setattr("lsmstate.engine.intake.hash_keys", counted)
    store = world.open()
    for rows in (batch((1, 5, "a"), (2, 5, "b")), batch((2, 6, "c"), (1, 6, "d"), (1, 7, "e"))):
        list(store.probe(0, rows))
        store.append(1, rows)
        store.append(0, rows)
    assert hashed == [2, 3]
    assert pairs(store, (1, 6, None)) == {("a", 0), ("d", 0), ("e", 0)}


@pytest.mark.parametrize("epoch", [False, True], ids=["in-memory", "in-a-file"])
@pytest.mark.parametrize("batch_rows", [1000, 64 << 10])
def test_hot_key_comes_out_in_bounded_batches(world: World, batch_rows: int, epoch: bool) -> None:
    rows, probes = 200_000, 50
    if batch_rows < 2000:
        rows, probes = rows // 20, probes // 5
    store = world.open(batch_rows=batch_rows)
    hot = [pa.array(np.full(rows, 7)), pa.array(np.arange(rows)), pa.nulls(rows, pa.string())]
    store.append(0, pa.RecordBatch.from_arrays(hot, schema=SCHEMA))
    if epoch:
        store.snapshot_epoch(1)
    sizes, indexes = [], Counter[int]()
    for part in store.probe(0, batch(*[(7, 0, None)] * probes)):
        sizes.append(part.num_rows)
        indexes.update(
            {int(n): int(count) for n, count in zip(*np.unique(part["probe_index"], return_counts=True), strict=True)}
        )
    assert sum(sizes) == rows * probes
    assert max(sizes) <= batch_rows
    assert indexes == dict.fromkeys(range(probes), rows)


def test_small_matches_of_many_runs_come_joined_but_bounded(world: World) -> None:
    store = world.open(batch_rows=50)
    for epoch in range(1, 21):
        store.append(0, batch(*[(1, epoch * 30, "x")] * 7))
        store.snapshot_epoch(epoch)
    sizes = [part.num_rows for part in store.probe(0, batch((1, 0, None)))]
    assert sum(sizes) == 140
    assert max(sizes) <= 50
    assert len(sizes) <= 4


def test_probe_that_is_given_up_keeps_nothing(tmp_path: Path) -> None:
    def kept() -> bool:
        return any(type(each) is _Found for each in gc.get_objects())

    rows = 20_000
    given = pa.record_batch(
        [np.arange(rows), pa.array(np.arange(rows), SCHEMA.field(1).type), pa.array(["x"] * rows)], schema=SCHEMA
    )
    with StateStore.open(tmp_path, sides(), Options(batch_rows=4096, auto_compact=False)) as store:
        for epoch in range(1, 6):
            store.append(0, given)
            store.snapshot_epoch(epoch)
        gc.collect()
        gc.disable()
        try:
            found = store.probe(0, given)
            next(found)
            found.close()
            assert not kept()  # nor does a helper that is gathering for it still
        finally:
            gc.enable()


def test_rows_that_ask_may_have_more_columns_though_their_side_has_only_keys_and_a_time(tmp_path: Path) -> None:
    bare = Side("bare", pa.schema([SCHEMA.field(0), SCHEMA.field(1)]), [SCHEMA.names[0]], SCHEMA.names[1])
    with StateStore.open(tmp_path, [bare]) as store:
        store.append(0, batch((1, 5, "a")).select([0, 1]))
        assert sum(found.num_rows for found in store.probe(0, batch((1, 5, "a"), (2, 5, "b")))) == 1
        with pytest.raises(SchemaError, match="does not fit"):
            store.append(0, batch((1, 5, "a")))
