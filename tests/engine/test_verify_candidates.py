"""`verify` of candidates: what a coordinator that publishes nothing can check, and whose damage it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from lsmstate import NotAStateError, StateStore, StoreClosedError
from lsmstate.hashing import hash_keys
from tests.support.simfs import SimFileSystem
from tests.support.states import PATH, World, batch, rows_of, sides

KINDS = sides()


@pytest.fixture
def world() -> Iterator[World]:
    with World(KINDS) as world:
        yield world


def opened(world: World, candidate: str | None, *, read_only: bool = True) -> StateStore:
    return StateStore.open_candidate(PATH, candidate, KINDS, read_only=read_only, fs=world.fs, pool=world.pool)


def chain(world: World, count: int) -> list[str]:
    """Candidates that build on each other, none of them published."""
    names: list[str] = []
    for epoch in range(1, count + 1):
        with opened(world, names[-1] if names else None, read_only=False) as store:
            store.append(0, batch((epoch, epoch, f"row {epoch}")))
            names.append(store.prepare(epoch))
    return names


def harmed(world: World, names: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    with opened(world, None) as store:
        return [(problem.what.split(":")[0], problem.epochs) for problem in store.verify(candidates=names)]


def without(world: World, part: str) -> None:
    """Loses the files whose path has a part."""
    tree = world.fs.tree()
    left = {path: data for path, data in tree.items() if part not in path}
    assert len(left) < len(tree)
    world.fs = SimFileSystem.of(left)


def test_sound_candidates_are_checked_each_file_once(world: World) -> None:
    names, seen = chain(world, 4), []
    with opened(world, None) as store:
        assert store.verify(lambda name, done, total: seen.append((name, done, total)), candidates=names) == []
    assert [(done, total) for _, done, total in seen] == [(n, 4) for n in range(4)]
    assert {name for name, _, _ in seen} == world.files("sst")
    assert world.files("pins") == set()


def test_missing_file_harms_the_candidates_that_share_it(world: World) -> None:
    names = chain(world, 3)
    without(world, f"/sst/{names[1][:12]}")
    assert harmed(world, names) == [("the file is missing", (2, 3))]
    assert harmed(world, names[:1]) == []


def test_missing_manifest_and_missing_base_are_told_apart(world: World) -> None:
    names = chain(world, 3)
    without(world, names[2])
    assert harmed(world, names) == [("the file is missing", (3,))]
    without(world, names[0])
    assert harmed(world, names[1:2]) == [("the full manifest that it leans on is missing", (2,))]


def test_handle_at_a_candidate_checks_that_one_unless_told(world: World) -> None:
    names = chain(world, 2)
    with opened(world, names[1]) as store:
        assert store.verify() == []
    without(world, f"/sst/{names[0][:12]}")
    with opened(world, names[1]) as store:
        assert [problem.epochs for problem in store.verify()] == [(2,)]
    with opened(world, None) as store:
        assert store.verify() == []


def test_rows_whose_hashes_are_out_of_range_are_found(world: World) -> None:
    names = chain(world, 1)
    value = int(hash_keys([batch((1, 1, "")).column(0)])[0])
    with opened(world, None) as store:
        assert store.verify(candidates=names, hashes=(value, value)) == []
        for range_ in ((0, value - 1), (value + 1, 2**64 - 1)):
            (problem,) = store.verify(candidates=names, hashes=range_)
            assert "keys do not belong here" in problem.what


@pytest.mark.parametrize("name", ["", "head-0000000000000001", "../STATE", "x.full"])
def test_what_is_no_name_of_a_candidate_is_misuse(world: World, name: str) -> None:
    chain(world, 1)
    with opened(world, None) as store, pytest.raises(ValueError, match="not the name of a candidate"):
        store.verify(candidates=[name])


def test_read_only_handle_at_a_candidate_reads_and_writes_nothing(world: World) -> None:
    names = chain(world, 2)
    before = world.fs.tree()
    with opened(world, names[0]) as store:
        assert rows_of(store.scan(0)) == [(1, 1, "row 1")]
        with pytest.raises(StoreClosedError, match="read-only"):
            store.prepare(5)
    assert world.fs.tree() == before


@pytest.mark.parametrize("read_only", [True, False])
def test_candidate_is_not_looked_for_in_a_state_made_anew(world: World, read_only: bool) -> None:
    (name,) = chain(world, 1)
    world.fs = SimFileSystem()
    with pytest.raises(NotAStateError, match=f"there is no state, though {name} was prepared in it"):
        opened(world, name, read_only=read_only)
    assert world.fs.tree() == {}
