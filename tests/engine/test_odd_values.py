"""Values that Arrow lets in and would not make itself are kept, and no damage: in files, in logs, as keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from lsmstate import Side
from tests.support.crash_check import unsynced_lost
from tests.support.odd_values import KEYS, ODD, rows_of, side_of
from tests.support.states import World

CASES = [pytest.param(side_of(array), array, id=name) for name, array in ODD.items()]
CASES += [pytest.param(side_of(array, as_key=True), array, id=f"{name} as key") for name, array in KEYS.items()]
each_odd_value = pytest.mark.parametrize(("side", "array"), CASES)


@pytest.fixture
def world(side: Side) -> Iterator[World]:
    with World([side]) as world:
        yield world


def values_in(batches: Iterable[pa.RecordBatch]) -> pa.Array:
    """The values by the number of their row."""
    return pa.Table.from_batches(batches).sort_by("k").column("v").combine_chunks()


@each_odd_value
def test_acknowledged_values_come_back_from_a_log(world: World, side: Side, array: pa.Array) -> None:
    world.open(durability="wal").append(0, rows_of(side, array))
    world.fs = unsynced_lost(world.fs)
    again = world.open(durability="wal")
    assert values_in(again.scan(0)).equals(array)
    assert again.verify() == []
    again.snapshot_epoch(1)
    assert values_in(world.open().scan(0)).equals(array)


@each_odd_value
def test_state_that_holds_them_is_sound_before_and_after_a_merge(world: World, side: Side, array: pa.Array) -> None:
    store = world.open()
    for epoch in (1, 2):
        store.append(0, rows_of(side, array))
        store.snapshot_epoch(epoch)
    assert store.verify() == []
    store.compact(major=True)
    store.snapshot_epoch(3)
    assert store.verify() == []
    with store.at_epoch(1) as view:
        assert values_in(view.scan(0)).equals(array)
    twice = pa.array([0, 0, 1, 1, 2, 2])
    assert values_in(world.open().scan(0)).equals(array.take(twice))


@pytest.mark.parametrize(("side", "array"), CASES[len(ODD) :])
def test_odd_key_finds_its_row_and_no_other(world: World, side: Side, array: pa.Array) -> None:
    store, asking = world.open(), rows_of(side, array).slice(1, 1)
    store.append(0, rows_of(side, array))
    for stored in (False, True):
        if stored:
            store.snapshot_epoch(1)
        assert [batch.column("k").to_pylist() for batch in store.probe(0, asking, by=0)] == [[1]]
        with store.snapshot() as view:
            assert sum(rows for _, rows in view.heaviest(0)) == 3
