"""Where a branch can be made, and what one that fails leaves behind."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lsmstate import LsmStateError, NotAStateError, StateStore
from tests.support.states import World, batch, rows_of

BRANCH = "/other/branch"


@pytest.fixture
def store() -> Iterator[StateStore]:
    with World() as world:
        store = world.open(path="/home/sst")
        for epoch in (1, 2):
            store.append(0, batch((1, epoch, "a")))
            store.snapshot_epoch(epoch)
        yield store


def disk(store: StateStore) -> Any:
    return store._core.fs


@pytest.mark.parametrize("place", ["sst/b", "manifest/b", "pins/b", "merges/b", "wal", "new/deep", "sst"])
def test_branch_inside_the_state_is_refused_and_makes_nothing(store: StateStore, place: str) -> None:
    before = sorted(disk(store).list_dir("/home/sst"))
    with pytest.raises(NotAStateError, match="lies inside the state /home/sst; branch into a directory beside it"):
        store.branch(1, f"/home/sst/{place}")
    assert sorted(disk(store).list_dir("/home/sst")) == before


@pytest.mark.parametrize("place", ["/home", "/"])
def test_branch_around_the_state_is_refused(store: StateStore, place: str) -> None:
    with pytest.raises(NotAStateError, match="the state /home/sst lies inside it"):
        store.branch(1, place)


def test_branch_whose_name_begins_like_that_of_the_state_is_made(store: StateStore) -> None:
    store.branch(2, "/home/sst-2")
    assert disk(store).kind("/home/sst-2/STATE") == "file"


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("call", ["link", "create"])
def test_branch_that_fails_can_be_tried_again_in_the_same_place(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    fs, calls = disk(store), 0
    real: Callable[..., Any] = getattr(fs, call)

    def failing(*rest: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return real(*rest)

    with monkeypatch.context() as patch:
        patch.setattr(fs, call, failing)
        with pytest.raises((LsmStateError, OSError), match=r"cross-device|cannot share files"):
            store.branch(2, BRANCH)
    assert calls == number
    store.branch(2, BRANCH)
    with StateStore.open(BRANCH, fs=fs) as branch:
        assert rows_of(branch.scan(0)) == [(1, 1, "a"), (1, 2, "a")]
        assert branch.verify() == []


def test_what_another_one_has_put_there_is_left_alone(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = disk(store)
    real: Callable[..., Any] = fs.link

    def overtaken(source: str, target: str) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, "File exists", target)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "link", overtaken)
        with pytest.raises(FileExistsError):
            store.branch(2, BRANCH)
    assert len(fs.list_dir(f"{BRANCH}/sst")) == 1
