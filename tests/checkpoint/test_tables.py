"""Tables of an operator: the latest row of each key is found, and dead ones are folded away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsmstate import Side
from lsmstate.checkpoint.tables import keyed_table, latest
from lsmstate.checkpoint.tables.table_set import KeyedTable, TableSet
from lsmstate.engine import intake
from lsmstate.errors import LsmStateError, SchemaError, StoreClosedError
from tests.support.keyed_rows import SCHEMA, got, held, keys, rows


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
