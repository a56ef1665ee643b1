"""A state whose manifests are gone is damaged, not new; one that never had any opens as what it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lsmstate import CorruptionError, StateStore
from tests.support.simfs import SimFileSystem
from tests.support.states import PATH, World, batch, rows_of

Tree = dict[str, bytes | None]
MANIFESTS = f"{PATH}/manifest"


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def published(world: World, epochs: int = 3) -> Tree:
    with world.open() as store:
        for epoch in range(1, epochs + 1):
            store.append(0, batch((1, epoch, "a")))
            store.snapshot_epoch(epoch)
    return world.fs.tree()


def without_manifests(tree: Tree, *, keep_directory: bool) -> Tree:
    left = {path: data for path, data in tree.items() if not f"{path}/".startswith(f"{MANIFESTS}/")}
    return {**left, MANIFESTS: None} if keep_directory else left


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("keep_directory", [False, True], ids=["no directory", "an empty directory"])
def test_state_without_its_manifests_is_refused_and_left_alone(
    world: World, keep_directory: bool, read_only: bool
) -> None:
    fs = SimFileSystem.of(without_manifests(published(world), keep_directory=keep_directory))
    before = fs.tree()
    with pytest.raises(CorruptionError, match="the manifests, which say what of 3 files in sst/ is the state") as told:
        world.open(fs=fs, read_only=read_only)
    assert told.value.path == MANIFESTS
    assert "docs/recovery.md" in str(told.value)
    assert fs.tree() == before


def test_state_of_one_epoch_without_the_directory_is_refused(world: World) -> None:
    fs = SimFileSystem.of(without_manifests(published(world, 1), keep_directory=False))
    with pytest.raises(CorruptionError, match="1 file in sst/"):
        world.open(fs=fs)


def test_branch_without_its_manifests_is_refused(world: World) -> None:
    published(world)
    with world.open() as store:
        store.branch(3, "/branch")
    fs = world.fs.spawn()
    for name in fs.list_dir("/branch/manifest"):
        fs.unlink(f"/branch/manifest/{name}")
    with pytest.raises(CorruptionError, match="got an empty directory"):
        world.open(path="/branch", fs=fs)


@pytest.mark.parametrize("epoch", [1, 7])
@pytest.mark.parametrize("way", ["flushed", "prepared", "prepared and aborted", "aborted after it was prepared"])
def test_first_epoch_that_was_never_committed_leaves_a_state_that_opens(world: World, way: str, epoch: int) -> None:
    store = world.open(memtable_bytes=1)
    store.append(0, batch((1, 1, "a")))
    if way == "flushed":
        store.append(0, batch((1, 2, "b")))
    else:
        store.prepare(epoch)
        store.append(0, batch((1, 2, "b")))  # in a file of the epoch after
        if way == "prepared and aborted":
            store.abort(epoch)
    store.close()
    if way == "aborted after it was prepared":
        with world.open() as other:
            other.abort(epoch)
    assert world.pool.close(30.0)
    assert world.files("sst")
    with StateStore.open(PATH, fs=world.fs.spawn()) as again:
        assert rows_of(again.scan(0)) == []
        again.append(0, batch((2, 1, "c")))
        again.snapshot_epoch(epoch)
        assert again.verify() == []


def test_copy_that_lost_empty_directories_opens(world: World) -> None:
    with world.open():
        pass
    new = {path: data for path, data in world.fs.tree().items() if data is not None}
    with world.open(fs=SimFileSystem.of(new)) as store:
        store.append(0, batch((1, 1, "a")))
        store.snapshot_epoch(1)
    full = {path: data for path, data in published(world).items() if data is not None}
    assert world.open(fs=SimFileSystem.of(full)).epochs() == [1, 2, 3]
