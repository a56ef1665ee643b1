"""Rows of one key and time keep the order of their arrival, however the memtable has filed them."""

from __future__ import annotations

import pytest

from tests.support.states import World, batch, plain

INTERLEAVED = [
    [(1, 5, "0"), (1, 15, "1")],  # filed under the bucket of 5
    [(1, 15, "2")],  # under that of 15
    [(1, 5, "3"), (1, 15, "4")],  # joined with the first
]


@pytest.mark.parametrize("stored", [False, True], ids=["in-memory", "in-a-file"])
def test_equal_rows_of_interleaved_appends_stay_in_order(stored: bool) -> None:
    with World() as world:
        store = world.open()
        for rows in INTERLEAVED:
            store.append(0, batch(*rows))
        if stored:
            store.snapshot_epoch(1)
            assert store.verify() == []
        assert [row[2] for row in plain(store.scan(0, ordered=True))] == ["0", "3", "1", "2", "4"]
        assert sorted(row[2] for row in plain(store.probe(0, batch((1, 15, None)), 0, 0))) == ["1", "2", "4"]


def test_removal_between_interleaved_appends_kills_only_what_came_before() -> None:
    with World() as world:
        store = world.open()
        store.append(0, batch(*INTERLEAVED[0]))
        store.append(0, batch(*INTERLEAVED[1]))
        store.remove(0, 0, 100)
        store.append(0, batch(*INTERLEAVED[2]))
        for _ in range(2):
            assert sorted(row[2] for row in plain(store.scan(0))) == ["3", "4"]
            store.snapshot_epoch(store.stats().epoch + 1)
        assert store.verify() == []
