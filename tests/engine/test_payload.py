"""Every type as payload, through all of a row's life: memory, files, merges, epochs, branches, the log.

Values are drawn from seeds, with NULLs on all levels, and arrays are cut out of longer ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsmstate import Side, StateStore
from lsmstate.engine import merge
from tests.support.column_values import deep
from tests.support.crash_check import unsynced_lost
from tests.support.random_values import ALL, array_of
from tests.support.states import US, World

EPOCHS, ROWS = 5, 60
kinds = pytest.mark.parametrize("kind", ALL, ids=str)


def sides_of(kind: pa.DataType) -> list[Side]:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", kind)])
    return [Side(name, schema, ["k"], "ts", 100 * EPOCHS * US, 50 * US) for name in ("left", "right")]


def rows_from(first: int, kind: pa.DataType, seed: int = 0) -> pa.RecordBatch:
    """Rows with times of their own, from `first` on."""
    rng, times = Random(first + seed), range(first, first + ROWS)
    keys = pa.array([n % 7 for n in times], pa.int64())
    columns = [keys, pa.array(times, pa.int64()), array_of(rng, kind, ROWS)]
    return pa.RecordBatch.from_arrays(columns, names=["k", "ts", "v"])


def sorted_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    table = pa.Table.from_batches([part.select(schema.names) for part in batches], schema)
    table.validate(full=True)
    return table.take(pc.sort_indices(table["ts"])).combine_chunks()


def check(store: StateStore, expected: list[pa.RecordBatch]) -> None:
    """What is read by scan and probe, many rows and few of each run, is what was written."""
    schema = store.sides[0].schema
    wanted = sorted_rows(expected, schema)
    assert sorted_rows(store.scan(0), schema).equals(wanted)
    few = wanted.filter(pc.equal(pc.bit_wise_and(wanted["ts"], 7), 3)).select(["k", "ts"])
    for asking in (wanted.select(["k", "ts"]), few):
        found = sorted_rows(store.probe(0, asking, 0, 0), schema)
        assert found.equals(wanted.filter(pc.is_in(wanted["ts"], asking["ts"])).combine_chunks())


@kinds
def test_values_of_every_type_live_through_epochs_merges_and_branches(kind: pa.DataType) -> None:
    with World(sides_of(kind)) as world:
        store = world.open()
        written = [rows_from(epoch * 100, kind) for epoch in range(EPOCHS)]
        for epoch, rows in enumerate(written, 1):
            store.append(0, rows.slice(0, 17))
            store.append(0, rows.slice(17))
            check(store, written[:epoch])
            store.snapshot_epoch(epoch)
        check(store, written)
        assert store.verify() == []
        store.advance_watermark(100 * EPOCHS)  # so that units are due
        store.remove(0, 210, 230)
        store.snapshot_epoch(EPOCHS + 1)
        runs = store.stats().sides[0].runs
        store.compact()
        store.snapshot_epoch(EPOCHS + 2)
        assert store.stats().sides[0].runs != runs, "rows were not gathered by unit"
        kept = [part.filter(pc.or_(pc.less(part["ts"], 210), pc.greater_equal(part["ts"], 230))) for part in written]
        kept[0] = kept[0].filter(pc.greater(kept[0]["ts"], 0))
        again = world.open(read_only=True)
        check(again, kept)
        assert again.verify() == []
        with again.at_epoch(2) as past:
            check(past, written[:2])
        store.branch(3, "/branch")
        check(world.open(path="/branch"), written[:3])


@kinds
def test_values_of_every_type_are_replayed_from_the_log(kind: pa.DataType) -> None:
    with World(sides_of(kind)) as world:
        store = world.open(durability="wal")
        written = [rows_from(number * 100, kind) for number in range(3)]
        for rows in written:
            store.append(0, rows)
        store.append(0, pa.Table.from_batches([rows_from(300, kind), rows_from(400, kind)]))
        world.fs = unsynced_lost(world.fs)
        check(world.open(durability="wal"), [*written, rows_from(300, kind), rows_from(400, kind)])


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_all_types_together_live_through_merges(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "PIECE_ROWS", 16)  # so that columns become several parts
    rng = Random(seed)
    picked = [ALL[int(rng.random() * len(ALL))] for _ in range(6)]
    kind = pa.struct([(f"f{number}", one) for number, one in enumerate(picked)])
    kind = pa.map_(pa.int32(), kind) if seed % 2 else pa.large_list(kind)
    with World(sides_of(kind)) as world:
        store = world.open()
        written = [rows_from(number * 60, kind, seed) for number in range(4)]
        for epoch, rows in enumerate(written, 1):
            store.append(0, rows)
            store.snapshot_epoch(epoch)
        store.advance_watermark(499)
        store.snapshot_epoch(5)
        store.compact()
        store.snapshot_epoch(6)
        check(world.open(read_only=True), written)


def test_column_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(ValueError, match="nested deeper than 32"):
        sides_of(deep(33))


@pytest.mark.parametrize(
    "kind", [pa.uuid(), pa.list_(pa.bool8()), pa.sparse_union([pa.field("a", pa.int8())]), pa.json_()], ids=str
)
def test_types_without_plain_values_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="no side can hold"):
        sides_of(kind)
