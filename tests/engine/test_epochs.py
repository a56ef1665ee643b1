"""Epochs: prepare makes one durable, commit publishes it, abort forgets it, restore goes back."""

from __future__ import annotations

import pytest

from lsmstate import EpochError, StateStore
from tests.support.states import World, batch, rows_of


def values(store: StateStore) -> list[str]:
    """The last column of side 0."""
    return sorted(row[2] for row in rows_of(store.scan(0)))


def at(store: StateStore, epoch: int) -> list[str]:
    with store.at_epoch(epoch) as view:
        return sorted(row[2] for row in rows_of(view.scan(0)))


def test_uncommitted_rows_can_be_read_and_are_lost_by_closing(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a")))
    store.snapshot_epoch(1)
    store.append(0, batch((1, 2, "b")))
    assert values(store) == ["a", "b"]
    store.close()
    assert values(world.open()) == ["a"]


def test_rows_after_prepare_belong_to_the_next_epoch(world: World) -> None:
    store = world.open(memtable_bytes=1)
    store.append(0, batch((1, 1, "a")))
    store.prepare(1)
    store.append(0, batch((1, 2, "b")))
    store.commit(1)
    assert at(store, 1) == ["a"]
    assert values(world.open()) == ["a"]
    store.snapshot_epoch(2)
    assert at(store, 1) == ["a"]
    assert at(store, 2) == ["a", "b"]
    assert values(world.open()) == ["a", "b"]


def test_removal_and_watermark_after_prepare_belong_to_the_next_epoch(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a"), (1, 5, "b"), (1, 900, "c")))
    store.prepare(1)
    store.remove(0, 1, 2)
    store.advance_watermark(1005)
    store.commit(1)
    assert at(store, 1) == ["a", "b", "c"]
    assert values(world.open()) == ["a", "b", "c"]
    assert values(store) == ["c"]
    store.snapshot_epoch(2)
    assert at(store, 1) == ["a", "b", "c"]
    assert values(world.open()) == ["c"]


def test_delete_only_epoch_survives_reopening(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a"), (1, 20, "b")))
    store.snapshot_epoch(1)
    store.remove(0, 0, 10)
    store.snapshot_epoch(2)
    store.close()
    store = world.open()
    assert values(store) == ["b"]
    assert at(store, 1) == ["a", "b"]
    assert at(store, 2) == ["b"]


def test_watermark_only_epoch_survives_reopening(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a"), (1, 20, "b")))
    store.snapshot_epoch(1)
    store.advance_watermark(1001)
    store.snapshot_epoch(2)
    store.close()
    assert values(world.open()) == ["b"]


@pytest.mark.parametrize("memtable_bytes", [1, 1 << 20], ids=["spilled", "in-memory"])
def test_delete_and_reinsert_in_one_epoch_keeps_the_new_row(world: World, memtable_bytes: int) -> None:
    store = world.open(memtable_bytes=memtable_bytes)
    store.append(0, batch((1, 5, "old")))
    store.remove(0, 0, 10)
    store.append(0, batch((1, 5, "new")))
    assert values(store) == ["new"]
    store.snapshot_epoch(1)
    store.close()
    assert values(world.open()) == ["new"]


def test_touching_removals_kill_only_what_was_there_before_each(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 5, "old"), (1, 15, "old")))
    store.remove(0, 0, 10)
    store.append(0, batch((1, 5, "new")))
    store.remove(0, 10, 20)
    store.remove(0, 20, 30)
    assert values(store) == ["new"]
    store.snapshot_epoch(1)
    assert values(world.open()) == ["new"]


def test_uncommitted_delete_does_not_purge_committed_rows(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a")))
    store.snapshot_epoch(1)
    store.remove(0, 0, 10)
    store.advance_watermark(10**6)
    store.prepare(2)
    store.close()
    assert values(world.open()) == ["a"]


def test_abort_keeps_the_rows_for_the_next_epoch(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a"), (1, 5, "gone")))
    store.prepare(1)
    store.remove(0, 5, 6)
    store.abort(1)
    store.append(0, batch((1, 2, "b")))
    assert store.epochs() == []
    assert values(world.open()) == []
    store.snapshot_epoch(1)
    store.close()
    assert values(world.open()) == ["a", "b"]


def test_abort_leaves_no_candidate(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a")))
    store.prepare(1)
    store.abort(1)
    assert world.files("manifest") == {"aborted"}
    with pytest.raises(EpochError, match="not prepared"):
        store.commit(1)
    with pytest.raises(EpochError, match="nothing to abort"):
        store.abort(1)


def test_only_one_epoch_can_be_prepared_at_a_time(world: World) -> None:
    store = world.open()
    store.prepare(3)
    with pytest.raises(EpochError, match="epoch 3 is prepared; commit or abort it"):
        store.prepare(4)
    with pytest.raises(EpochError, match="epoch 3 is prepared, not epoch 4"):
        store.commit(4)
    store.commit(3)


@pytest.mark.parametrize("named", [False, True])
def test_committing_twice_is_harmless(world: World, named: bool) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a")))
    name = store.prepare(1)
    candidate = name if named else None
    store.commit(1, candidate=candidate)
    store.append(0, batch((1, 2, "b")))
    before = world.fs.digest()
    store.commit(1, candidate=candidate)
    assert world.fs.digest() == before
    other = world.open()
    other.commit(1, candidate=candidate)
    assert values(store) == ["a", "b"]
    assert values(other) == ["a"]


def test_epochs_do_not_go_back(world: World) -> None:
    store = world.open()
    store.snapshot_epoch(5)
    for epoch in (5, 4):
        with pytest.raises(EpochError, match="epochs only go forward"):
            store.prepare(epoch)
    store.snapshot_epoch(50)
    assert store.epochs() == [5, 50]


def test_restore_starts_a_new_line_and_what_is_written_there_bears_its_number(world: World) -> None:
    store = world.open()
    for epoch in (1, 2):
        store.append(0, batch((1, epoch, "a")))
        store.snapshot_epoch(epoch)
    assert store.stats().line == 1
    store.restore(1)
    assert store.stats().line == 2
    store.append(0, batch((1, 2, "b")))
    assert "-000002-" in store.prepare(2)
    store.commit(2)
    assert world.open().stats().line == 2


def test_restore_discards_what_is_newer_and_continues_after_it(world: World) -> None:
    store = world.open(memtable_bytes=1)
    for epoch, value in enumerate("abc", 1):
        store.append(0, batch((1, epoch, value)))
        store.advance_watermark(epoch)
        store.snapshot_epoch(epoch)
    store.append(0, batch((1, 4, "uncommitted")))
    store.remove(0, 0, 100)
    store.restore(2)
    assert values(store) == ["a", "b"]
    assert store.epochs() == [1, 2]
    with pytest.raises(EpochError, match="no epoch 3"):
        store.at_epoch(3)
    store.close()
    store = world.open()
    assert values(store) == ["a", "b"]
    store.append(0, batch((1, 9, "other")))
    store.snapshot_epoch(3)
    assert at(world.open(), 3) == ["a", "b", "other"]
    assert world.open().verify() == []


def test_restore_forgets_a_prepared_epoch(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a")))
    store.snapshot_epoch(1)
    store.append(0, batch((1, 2, "b")))
    store.prepare(2)
    store.restore(1)
    with pytest.raises(EpochError, match="not prepared"):
        store.commit(2)
    store.snapshot_epoch(2)
    assert at(world.open(), 2) == ["a"]


def test_restored_watermark_shows_what_a_later_one_retired(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 1, "a")))
    store.snapshot_epoch(1)
    store.advance_watermark(10**6)
    store.snapshot_epoch(2)
    assert values(store) == []
    store.restore(1)
    assert values(store) == ["a"]


def test_only_retained_epochs_can_be_opened(world: World) -> None:
    store = world.open(retain=3)
    for epoch in range(1, 8):
        store.append(0, batch((1, epoch, str(epoch))))
        store.snapshot_epoch(epoch)
    assert store.epochs() == [5, 6, 7]
    assert at(store, 5) == ["1", "2", "3", "4", "5"]
    with pytest.raises(EpochError, match="no epoch 4; those that can be opened are: 5, 6, 7"):
        store.at_epoch(4)


def test_meta_is_kept_with_its_epoch(world: World) -> None:
    store = world.open()
    store.snapshot_epoch(1, meta={"offset": "17", "list": [1, None, {"x": 0.5}]})
    store.prepare(2, meta={"offset": "18"})
    assert world.open().meta == {"offset": "17", "list": [1, None, {"x": 0.5}]}
    store.commit(2)
    assert world.open().meta == {"offset": "18"}
    store.restore(1)
    assert world.open().meta["offset"] == "17"


def test_branch_goes_its_own_way_and_copies_nothing(world: World) -> None:
    store = world.open(retain=1)
    store.append(0, batch((1, 1, "a")))
    store.snapshot_epoch(4)
    store.branch(4, "/branch")
    assert world.files("sst", "/branch") == world.files("sst")
    branch = world.open(path="/branch")
    branch.append(0, batch((1, 2, "branch")))
    branch.snapshot_epoch(5)
    store.advance_watermark(10**6)
    for epoch in (5, 6, 7):
        store.snapshot_epoch(epoch)
    assert values(branch) == ["a", "branch"]
    assert branch.epochs() == [4, 5]
    assert branch.verify() == []
    assert values(store) == []
