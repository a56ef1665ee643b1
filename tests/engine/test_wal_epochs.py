"""A write-ahead log beside epochs: what an epoch holds is not replayed, and what came after it is."""

from __future__ import annotations

import pytest

from lsmstate import EpochError, FencedError
from tests.support.states import World, batch, rows_of
from tests.support.wal_world import after_power_cut, row, wal


def test_what_prepare_wrote_is_not_replayed_and_what_came_after_is(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.prepare(1)
    store.append(0, batch(row(2)))
    store.commit(1)
    store.append(0, batch(row(3)))
    again = after_power_cut(world)
    assert rows_of(again.scan(0)) == [row(1), row(2), row(3)]
    assert again.stats().memtable_rows == 2
    with again.at_epoch(1) as view:
        assert rows_of(view.scan(0)) == [row(1)]


def test_prepared_epoch_of_a_dead_handle_is_committed_as_it_was_prepared(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.prepare(1)
    store.append(0, batch(row(2)))
    again = after_power_cut(world)
    again.commit(1)
    assert rows_of(again.scan(0)) == [row(1), row(2)]
    last = after_power_cut(world)
    with last.at_epoch(1) as view:
        assert rows_of(view.scan(0)) == [row(1)]
    assert rows_of(last.scan(0)) == [row(1), row(2)]


def test_prepared_epoch_cannot_be_committed_once_another_handle_has_written(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    name = store.prepare(1)
    again = wal(world)
    again.append(0, batch(row(2)))
    with pytest.raises(EpochError):
        again.commit(1, candidate=name)
    with pytest.raises(FencedError):
        store.commit(1)
    assert rows_of(after_power_cut(world).scan(0)) == [row(1), row(2)]


def test_commit_can_be_repeated_by_every_handle_that_comes(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    name = store.prepare(1)
    store.commit(1)
    for n in range(2, 5):
        store = wal(world)
        store.commit(1, candidate=name)
        store.append(0, batch(row(n)))
        store.commit(1, candidate=name)
    with pytest.raises(EpochError):
        store.commit(1, candidate=name.replace("000000000001", "000000000007"))


def test_aborted_epoch_loses_no_rows(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.prepare(1)
    store.append(0, batch(row(2)))
    store.abort(1)
    again = after_power_cut(world)
    assert rows_of(again.scan(0)) == [row(1), row(2)]
    again.snapshot_epoch(1)
    assert again.stats().log_bytes == 0


def test_restore_discards_what_was_logged_and_goes_on(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    store.snapshot_epoch(2)
    store.append(0, batch(row(3)))
    position = store.wal_position
    store.restore(1)
    assert rows_of(after_power_cut(world).scan(0)) == [row(1)]
    store = wal(world)
    store.append(0, batch(row(4)))
    assert store.wal_position > position
    assert rows_of(after_power_cut(world).scan(0)) == [row(1), row(4)]


def test_branch_begins_with_its_epoch_and_no_record(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    store.branch(1, "/branch")
    for durability in ("epoch", "wal", "epoch"):
        branch = world.open(path="/branch", durability=durability)
        assert rows_of(branch.scan(0)) == [row(1)]
    assert rows_of(wal(world).scan(0)) == [row(1), row(2)]


def test_log_is_removed_once_an_epoch_holds_it_and_never_before(world: World) -> None:
    store = wal(world, retain=2)
    sizes = []
    for epoch in range(1, 6):
        store.append(0, batch(*(row(epoch * 10 + n) for n in range(5))))
        assert store.stats().log_bytes > 0
        store.prepare(epoch)
        kept = world.files("wal")
        store.commit(epoch)
        assert world.files("wal") < kept
        assert store.stats().log_bytes == 0
        sizes.append(len(world.files("wal")))
    assert sizes == [1] * 5
    assert store.stats().collection_error is None


def test_position_only_grows_and_counts_what_is_durable(world: World) -> None:
    seen = [0]
    for turn in range(3):
        store = wal(world)
        assert store.wal_position >= seen[-1]
        store.append(0, batch(row(turn)))
        seen.append(store.wal_position)
        store.snapshot_epoch(turn + 1)
        assert store.wal_position == seen[-1]
        store.restore(turn + 1)
        store.append(1, batch(row(turn)))
        seen.append(store.wal_position)
    assert seen == sorted(set(seen))
    assert world.open(read_only=True).wal_position == 0
