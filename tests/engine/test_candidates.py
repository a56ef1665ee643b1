"""Candidates: what a handle prepared and did not commit, and who may commit it."""

from __future__ import annotations

import pytest

from lsmstate import EpochError, FencedError, StateStore
from tests.support.states import World, batch, rows_of


def values(store: StateStore) -> list[str]:
    return sorted(row[2] for row in rows_of(store.scan(0)))


def prepared(world: World, value: str, epoch: int = 2) -> tuple[StateStore, str]:
    """A handle with one row prepared, and its candidate."""
    store = world.open()
    store.append(0, batch((1, 1, value)))
    return store, store.prepare(epoch)


def begun(world: World) -> None:
    """A state with one epoch."""
    store = world.open()
    store.append(0, batch((1, 0, "first")))
    store.snapshot_epoch(1)
    store.close()


def test_candidate_of_a_crashed_handle_can_be_committed(world: World) -> None:
    begun(world)
    prepared(world, "a")
    world.fs = world.fs.copy()
    store = world.open()
    assert values(store) == ["first"]
    store.commit(2)
    assert values(store) == ["a", "first"]
    assert store.epochs() == [1, 2]
    store.append(0, batch((1, 2, "b")))
    store.snapshot_epoch(3)
    reopened = world.open()
    assert values(reopened) == ["a", "b", "first"]
    assert reopened.verify() == []


def test_candidate_of_the_first_epoch_can_be_committed_after_a_crash(world: World) -> None:
    prepared(world, "a", 1)
    world.fs = world.fs.copy()
    store = world.open()
    store.commit(1)
    assert values(world.open()) == ["a"]


def test_candidate_of_a_crashed_handle_can_be_aborted(world: World) -> None:
    begun(world)
    prepared(world, "a")
    store = world.open()
    store.abort(2)
    with pytest.raises(EpochError, match="not prepared"):
        store.commit(2)
    store.append(0, batch((1, 1, "other")))
    store.snapshot_epoch(2)
    assert values(world.open()) == ["first", "other"]


def test_one_of_several_candidates_is_committed_by_name(world: World) -> None:
    begun(world)
    names = {value: prepared(world, value)[1] for value in "abc"}
    assert len(set(names.values())) == 3
    store = world.open()
    with pytest.raises(EpochError, match=r"3 candidates; name one with candidate=") as error:
        store.commit(2)
    assert all(name in str(error.value) for name in names.values())
    store.commit(2, candidate=names["b"])
    assert values(world.open()) == ["b", "first"]
    with pytest.raises(EpochError):
        world.open().commit(2, candidate=names["a"])


def test_files_of_other_candidates_are_never_mixed_in(world: World) -> None:
    begun(world)
    (one, _), (other, _) = prepared(world, "one"), prepared(world, "other")
    other.commit(2)
    with pytest.raises(FencedError):
        one.commit(2)
    reopened = world.open()
    assert values(reopened) == ["first", "other"]
    reopened.snapshot_epoch(3)
    assert values(world.open()) == ["first", "other"]


def test_candidates_of_different_epochs_stand_side_by_side(world: World) -> None:
    begun(world)
    prepared(world, "two", 2)
    prepared(world, "seven", 7)
    store = world.open()
    store.commit(7)
    assert store.epochs() == [1, 7]
    assert values(world.open()) == ["first", "seven"]
    with pytest.raises(EpochError):
        store.commit(2)


def test_handle_that_has_written_does_not_commit_for_another(world: World) -> None:
    begun(world)
    _, name = prepared(world, "a")
    store = world.open()
    store.append(0, batch((1, 1, "mine")))
    with pytest.raises(EpochError, match="reopen first"):
        store.commit(2, candidate=name)
    assert values(store) == ["first", "mine"]
    assert values(world.open()) == ["first"]


def test_handle_with_its_own_candidate_does_not_commit_another_by_mistake(world: World) -> None:
    begun(world)
    _, name = prepared(world, "other")
    mine, _ = prepared(world, "mine")
    with pytest.raises(EpochError):
        mine.commit(2, candidate=name)
    with pytest.raises(EpochError):
        mine.commit(2, candidate="no such candidate")
    mine.commit(2)
    assert values(world.open()) == ["first", "mine"]


def test_candidate_that_another_handle_aborted_can_be_prepared_again(world: World) -> None:
    begun(world)
    store, _ = prepared(world, "a")
    world.open().abort(2)
    with pytest.raises(EpochError, match="2"):
        store.commit(2)
    store.append(0, batch((1, 2, "b")))
    store.prepare(2)
    store.commit(2)
    assert values(world.open()) == ["a", "b", "first"]


def test_abort_of_what_another_handle_aborted_is_harmless(world: World) -> None:
    begun(world)
    store, _ = prepared(world, "a")
    world.open().abort(2)
    store.abort(2)
    store.snapshot_epoch(2)
    assert values(world.open()) == ["a", "first"]


def test_candidate_is_not_garbage_while_it_can_be_committed(world: World) -> None:
    begun(world)
    prepared(world, "a", 9)
    before = world.files("sst") | world.files("manifest")
    reader = world.open(retain=1)
    assert values(reader) == ["first"]
    assert before <= world.files("sst") | world.files("manifest")
    reader.commit(9)
    assert values(world.open()) == ["a", "first"]


def test_candidate_that_is_torn_does_not_count(world: World) -> None:
    begun(world)
    _, name = prepared(world, "a")
    tree = world.fs.tree()
    data = tree[f"/s/manifest/{name}"]
    assert data is not None
    world.fs = type(world.fs).of({**tree, f"/s/manifest/{name}": data[:-5]})
    store = world.open()
    with pytest.raises(EpochError, match="not prepared"):
        store.commit(2)
    store.append(0, batch((1, 1, "b")))
    store.snapshot_epoch(2)
    assert values(world.open()) == ["b", "first"]


def test_reused_attempt_name_never_harms_the_candidate_of_the_first(world: World) -> None:
    first = world.open(attempt="task0")
    first.append(0, batch((1, 1, "a")))
    first.prepare(1)
    again = world.open(attempt="task0")
    again.append(0, batch((1, 1, "b")))
    with pytest.raises(FileExistsError):
        again.prepare(1)
    first.commit(1)
    reopened = world.open()
    assert reopened.verify() == []
    assert values(reopened) == ["a"]
