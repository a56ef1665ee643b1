"""Tables of an operator: the latest row of each key, through epochs, restarts and folding."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lsmstate import Side
from lsmstate.checkpoint.tables import keyed_table, latest
from lsmstate.checkpoint.tables.table_set import KeyedTable, TableSet
from lsmstate.engine import intake
from lsmstate.errors import EpochError, LsmStateError, SchemaError, StoreClosedError
from lsmstate.options import Options
from tests.support.crash_workload import InlinePool
from tests.support.simfs import SimFileSystem

SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64(), nullable=False), pa.field("w", pa.string())])
KEYS = pa.schema([("k", pa.string())])
SMALL = Options(memtable_bytes=2048, retain=5)


def rows(*told: tuple[str, int]) -> pa.RecordBatch:
    keys, values = zip(*told, strict=True) if told else ((), ())
    columns = [
        pa.array(keys, pa.string()),
        pa.array(values, pa.int64()),
        pa.array([f"w{v}" for v in values], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def keys(*names: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(names, pa.string())], schema=KEYS)


def held(table: KeyedTable) -> dict[str, int]:
    """All rows of a table; each key once."""
    found: dict[str, int] = {}
    for batch in table.items():
        assert batch.schema.equals(SCHEMA)
        for row in batch.to_pylist():
            assert row["k"] not in found
            assert row["w"] == f"w{row['v']}"
            found[row["k"]] = row["v"]
    return found


def got(table: KeyedTable, *names: str) -> dict[str, int]:
    """What `get` gives for some keys."""
    found = table.get(keys(*names))
    assert found.index.tolist() == sorted(found.index.tolist())
    assert [names[at] for at in found.index] == found.rows.column("k").to_pylist()
    assert found.rows.schema.equals(SCHEMA)
    return dict(zip(found.rows.column("k").to_pylist(), found.rows.column("v").to_pylist(), strict=True))


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[TableSet]:
    with TableSet(tmp_path / "op") as opened:
        yield opened


@pytest.fixture
def table(tables: TableSet) -> KeyedTable:
    return tables.keyed("users", SCHEMA, ["k"])


def test_latest_row_of_each_key_is_found(table: KeyedTable) -> None:
    assert got(table, "a") == {}
    table.put(rows(("a", 1), ("b", 2), ("a", 3)))
    table.put(pa.Table.from_batches([rows(("c", 4)), rows(("b", 5))]))
    assert got(table, "c", "x", "a", "b") == {"a": 3, "b": 5, "c": 4}
    table.delete(keys("a", "never"))
    assert held(table) == {"b": 5, "c": 4}
    table.put(rows(("a", 6)))
    assert got(table, "a") == {"a": 6}


def test_keys_that_are_asked_for_twice_are_found_twice_and_null_finds_nothing(table: KeyedTable) -> None:
    table.put(rows(("a", 1), ("b", 2)))
    found = table.get(keys("b", None, "a", "b", "x"))
    assert found.index.tolist() == [0, 2, 3]
    assert found.rows.column("v").to_pylist() == [2, 1, 2]
    assert table.get(keys()).rows.num_rows == 0
    many = pa.Table.from_batches([keys("a"), keys("b", "a")])
    assert table.get(many).index.tolist() == [0, 1, 2]


def test_several_key_columns(tables: TableSet) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.float64())])
    table = tables.keyed("pairs", schema, ["b", "a"])
    table.put(pa.record_batch([[1, 1, 2], ["x", "y", "x"], [0.5, 1.5, 2.5]], schema=schema))
    table.put(pa.record_batch([[1], ["x"], [9.5]], schema=schema))
    found = table.get(pa.record_batch({"a": [2, 1, 1], "b": ["x", "x", "z"]}))
    assert found.rows.to_pylist() == [{"a": 2, "b": "x", "v": 2.5}, {"a": 1, "b": "x", "v": 9.5}]
    table.fold()
    assert sum(batch.num_rows for batch in table.items()) == 3


def test_bad_rows_are_refused_before_anything_is_changed(tables: TableSet, table: KeyedTable) -> None:
    table.put(rows(("a", 1)))
    without = pa.record_batch({"k": ["a"], "v": pa.array([2])})
    null_key = pa.RecordBatch.from_arrays(
        [pa.array([None, "b"]), pa.array([1, 2]), pa.array(["x", "y"])], schema=SCHEMA
    )
    null_value = pa.record_batch({"k": ["a"], "v": pa.array([None], pa.int64()), "w": ["x"]})
    for bad in (without, null_key, null_value, [("a", 2)]):
        with pytest.raises(SchemaError):
            table.put(bad)
    for bad in (keys(None), pa.record_batch({"k": pa.array([1])}), pa.record_batch({"x": ["a"]})):
        with pytest.raises(SchemaError):
            table.delete(bad)
    with pytest.raises(SchemaError):
        table.get(pa.record_batch({"k": pa.array([1])}))
    assert held(table) == {"a": 1}
    with pytest.raises(SchemaError, match="taken"):
        tables.keyed("other", SCHEMA.append(pa.field("__version", pa.int64())), ["k"])
    with pytest.raises(SchemaError, match="nothing"):
        tables.keyed("other", SCHEMA, ["w", "nothing"])


def test_folding_bounds_the_versions_by_the_rows_and_frees_their_files(
    tables: TableSet, table: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_table, "_FOLD_ROWS", 100)
    names = [f"key {n}" for n in range(300)]
    sizes = []
    for epoch in range(1, 31):
        table.put(rows(*((name, epoch * 1000 + at) for at, name in enumerate(names))))
        tables.prepare(epoch)
        tables.commit(epoch)
        sizes.append(table.store.stats().sides[0].rows)
    assert max(sizes) <= 4 * 300  # dead ones included
    assert held(table) == {name: 30_000 + at for at, name in enumerate(names)}


def test_table_without_rows_can_be_folded(table: KeyedTable) -> None:
    table.fold()
    table.put(rows(("a", 1)))
    table.delete(keys("a"))
    table.fold()
    assert held(table) == {}
    table.put(rows(("a", 2)))
    assert held(table) == got(table, "a") == {"a": 2}


def test_large_table_is_read_by_ranges_of_its_hashes(table: KeyedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "_RANGE_ROWS", 50)
    monkeypatch.setattr(keyed_table, "_BATCH_ROWS", 7)
    table.put(rows(*((f"k{n}", n) for n in range(1000))))
    table.put(rows(*((f"k{n}", n + 5) for n in range(500))))
    assert held(table) == {f"k{n}": n + 5 * (n < 500) for n in range(1000)}
    assert max(batch.num_rows for batch in table.items()) <= 7
    table.fold()
    assert held(table) == {f"k{n}": n + 5 * (n < 500) for n in range(1000)}


def test_keys_whose_hashes_collide_are_told_apart(table: KeyedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    real = intake.hash_keys
    monkeypatch.setattr(intake, "hash_keys", lambda columns: real(columns) % np.uint64(3))
    expected = {}
    for round_ in range(3):
        told = [(f"k{n}", n + 100 * round_) for n in range(round_, 30)]
        table.put(rows(*told))
        expected.update(told)
    table.delete(keys("k7", "k9"))
    expected = {k: v for k, v in expected.items() if k not in ("k7", "k9")}
    for _ in range(2):
        assert held(table) == expected
        assert got(table, *(f"k{n}" for n in range(30))) == expected
        table.fold()


def test_reopened_tables_go_on_from_their_last_epoch(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        table.put(rows(("a", 1)))
        table.note = {"offsets": {"rows": "1"}}
        tables.prepare(1)
        table.put(rows(("a", 2)))  # of the next epoch
        tables.commit(1)
    with TableSet(tmp_path) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        assert held(table) == {"a": 1}
        assert table.note == {"offsets": {"rows": "1"}}
        table.put(rows(("a", 3)))
        assert held(table) == {"a": 3}


def test_epoch_that_was_decided_is_committed_when_opened_and_one_that_was_not_is_forgotten(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        table.put(rows(("a", 1)))
        first = tables.prepare(1)
        tables.commit(1)
        table.put(rows(("a", 2)))
        second = tables.prepare(2)
    with TableSet(tmp_path, safe_epoch=1, candidates=first) as tables:
        assert held(tables.keyed("users", SCHEMA, ["k"])) == {"a": 1}
    with TableSet(tmp_path, safe_epoch=2, candidates=second) as tables:
        assert held(tables.keyed("users", SCHEMA, ["k"])) == {"a": 2}
    with TableSet(tmp_path, safe_epoch=1, candidates=first) as tables:  # restored at an earlier epoch
        table = tables.keyed("users", SCHEMA, ["k"])
        assert held(table) == {"a": 1}
        table.put(rows(("b", 9)))
        again = tables.prepare(2)
        tables.commit(2)
    with TableSet(tmp_path, safe_epoch=2, candidates=again) as tables:
        assert held(tables.keyed("users", SCHEMA, ["k"])) == {"a": 1, "b": 9}
    with TableSet(tmp_path, safe_epoch=7) as tables, pytest.raises(EpochError, match="not prepared"):
        tables.keyed("users", SCHEMA, ["k"])
    with TableSet(tmp_path, safe_epoch=0) as tables, pytest.raises(EpochError, match="start"):
        tables.keyed("users", SCHEMA, ["k"])


def test_table_that_the_checkpoint_does_not_know_starts_empty(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        told = {}
        tables.keyed("users", SCHEMA, ["k"])
        for epoch in (1, 2, 3):
            told = tables.prepare(epoch)
            tables.commit(epoch)
        tables.keyed("late", SCHEMA, ["k"]).put(rows(("a", 1)))
        tables.prepare(4)  # never decided
    with TableSet(tmp_path, safe_epoch=3, candidates=told) as tables:
        tables.keyed("users", SCHEMA, ["k"])
        late = tables.keyed("late", SCHEMA, ["k"])
        assert held(late) == {}
        late.put(rows(("b", 2)))
        told = tables.prepare(4)
        tables.commit(4)
    with TableSet(tmp_path, safe_epoch=4, candidates=told) as tables:
        assert held(tables.keyed("late", SCHEMA, ["k"])) == {"b": 2}
    with TableSet(tmp_path, safe_epoch=3, candidates={}) as tables, pytest.raises(EpochError, match="knows nothing"):
        tables.keyed("late", SCHEMA, ["k"])


def test_table_that_was_skipped_is_opened_at_the_epoch_that_it_has(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        table.put(rows(("a", 1)))
        tables.prepare(1)
        tables.commit(1)
        tables.commit(2)  # the operator's hook said that there is nothing to keep
        told = {name: state.lsm.candidate for name, state in tables.states("operators/x").items() if state.lsm}
    with TableSet(tmp_path, safe_epoch=2, candidates=told) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        assert held(table) == {"a": 1}
        tables.prepare(3)
        tables.commit(3)


def test_states_tell_the_candidate_its_files_and_its_directory(tmp_path: Path) -> None:
    with TableSet(tmp_path / "job" / "operators" / "x") as tables:
        assert tables.states("operators/x") == {}
        table = tables.keyed("users", SCHEMA, ["k"])
        table.put(rows(("a", 1)))
        candidate = tables.prepare(1)["users"]
        lsm = tables.states("operators/x")["users"].lsm
        assert lsm is not None
        assert (lsm.candidate, lsm.directory) == (candidate, "operators/x/table-users")
        assert all((tmp_path / "job" / lsm.directory / "sst" / file.name).is_file() for file in lsm.files)
        assert len(lsm.files) == 1
        tables.abort(1)
        assert tables.states("operators/x") == {}


def test_prepare_of_all_tables_or_of_none(tables: TableSet, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tables.keyed("one", SCHEMA, ["k"]), tables.keyed("two", SCHEMA, ["k"])
    one.put(rows(("a", 1)))
    with monkeypatch.context() as patched:
        patched.setattr(other, "prepare", lambda epoch: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            tables.prepare(1)
    assert tables.candidates == {}
    assert set(tables.prepare(1)) == {"one", "two"}
    tables.commit(1)
    tables.commit(1)
    tables.abort(1)
    assert held(one) == {"a": 1}


def test_expiring_table_is_a_store_whose_rows_go_with_the_watermark(tmp_path: Path) -> None:
    side = Side("clicks", pa.schema([("k", pa.int64()), ("ts", pa.int64())]), ["k"], "ts", timedelta(seconds=1))
    with TableSet(tmp_path) as tables:
        store = tables.expiring("clicks", [side])
        store.append(0, pa.record_batch({"k": pa.array([1, 2]), "ts": pa.array([0, 5_000_000])}))
        store.advance_watermark(5_000_000)
        tables.prepare(1)
        tables.commit(1)
    with TableSet(tmp_path, safe_epoch=1) as tables:
        store = tables.expiring("clicks", [side])
        assert [row["k"] for batch in store.scan(0) for row in batch.to_pylist()] == [2]


def test_names_are_checked_and_used_once(tables: TableSet, table: KeyedTable, tmp_path: Path) -> None:
    for bad in ("", "../x", "a/b", "A", "x" * 101, "a\0", 3):
        with pytest.raises(ValueError, match="name"):
            tables.keyed(bad, SCHEMA, ["k"])  # type: ignore[arg-type]
    with pytest.raises(LsmStateError, match="already"):
        tables.expiring("users", [Side("s", SCHEMA.append(pa.field("ts", pa.int64())), ["k"], "ts")])
    tables.close()
    tables.close()
    with pytest.raises(StoreClosedError):
        tables.keyed("more", SCHEMA, ["k"])
    with TableSet(tmp_path / "op") as again, pytest.raises(SchemaError):
        again.keyed("users", SCHEMA, ["w"])  # another key than before


NAMES = [f"k{n}" for n in range(8)]
FEW = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1000)), max_size=6)


class TableMachine(RuleBasedStateMachine):
    """A keyed table beside a dict, through everything that can happen to it."""

    @initialize()
    def begin(self) -> None:
        self.fs = SimFileSystem()
        self.now: dict[str, int] = {}
        self.past: dict[int, dict[str, int]] = {0: {}}
        self.prepared: tuple[int, dict[str, int], dict[str, str]] | None = None
        self.told: dict[str, str] | None = None
        self.open(None, None)

    def open(self, safe: int | None, candidates: dict[str, str] | None) -> None:
        pool: Any = InlinePool()
        self.tables = TableSet("/op", self.fs, pool, safe_epoch=safe, candidates=candidates, options=SMALL)
        self.table = self.tables.keyed("t", SCHEMA, ["k"])

    @property
    def last(self) -> int:
        return max(self.past)

    @rule(told=FEW)
    def put(self, told: list[tuple[str, int]]) -> None:
        self.table.put(rows(*told))
        self.now.update(told)

    @rule(names=st.lists(st.sampled_from(NAMES), max_size=4))
    def delete(self, names: list[str]) -> None:
        self.table.delete(keys(*names))
        for name in names:
            self.now.pop(name, None)

    @rule()
    def fold(self) -> None:
        self.table.fold()

    @precondition(lambda self: self.prepared is None)
    @rule()
    def prepare(self) -> None:
        epoch = self.last + 1
        self.prepared = (epoch, dict(self.now), self.tables.prepare(epoch))

    @precondition(lambda self: self.prepared is not None)
    @rule()
    def commit(self) -> None:
        assert self.prepared is not None
        epoch, held_then, _ = self.prepared
        self.tables.commit(epoch)
        self.past[epoch], self.prepared = held_then, None

    @precondition(lambda self: self.prepared is not None)
    @rule()
    def abort(self) -> None:
        assert self.prepared is not None
        self.tables.abort(self.prepared[0])
        self.prepared = None

    @rule(decided=st.booleans())
    def reopen(self, decided: bool) -> None:
        """A crash; a prepared epoch was decided, or was not."""
        self.tables.close()
        if self.prepared is not None and decided:
            epoch, held_then, candidates = self.prepared
            self.past[epoch] = held_then
            self.open(epoch, candidates)
        else:
            self.open(self.last, None)
        self.prepared, self.now = None, dict(self.past[self.last])

    @rule(back=st.integers(1, 3))
    def restore(self, back: int) -> None:
        epoch = self.last - back
        if epoch < 1:
            return
        self.tables.close()
        self.open(epoch, None)
        self.past = {number: kept for number, kept in self.past.items() if number <= epoch}
        self.prepared, self.now = None, dict(self.past[epoch])

    @invariant()
    def holds_what_the_dict_holds(self) -> None:
        assert held(self.table) == self.now
        assert got(self.table, *NAMES) == self.now

    def teardown(self) -> None:
        self.tables.close()


@pytest.mark.parametrize("fold_rows", [3, 10**9])
def test_table_equals_a_dict_whatever_happens(fold_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_table, "_FOLD_ROWS", fold_rows)
    run_state_machine_as_test(
        TableMachine,
        settings=settings(max_examples=20, stateful_step_count=30, deadline=None, derandomize=True, database=None),
    )
