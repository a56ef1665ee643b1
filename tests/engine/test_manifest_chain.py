"""Manifests over many epochs: deltas between full ones, two reads at most to open, and never a false fresh start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lsmstate import CorruptionError, LsmStateError, StateStore
from lsmstate.manifest import names
from tests.support.simfs import SimFileSystem
from tests.support.states import PATH, World, batch, rows_of

EPOCHS = 140  # more than two full manifests apart


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def grown(world: World, epochs: int, retain: int = 3) -> StateStore:
    """A state in which each epoch adds a row, and every third removes one."""
    store = world.open(retain=retain)
    for epoch in range(1, epochs + 1):
        store.append(0, batch((1, epoch, str(epoch))))
        if epoch % 3 == 0:
            store.remove(0, epoch - 1, epoch)
        store.snapshot_epoch(epoch)
    return store


def alive(epoch: int) -> list[int]:
    """The times that are left after an epoch."""
    return [n for n in range(1, epoch + 1) if not (n % 3 == 2 and n < epoch)]


def times(batches: object) -> list[int]:
    return sorted(row[1] for row in rows_of(batches))  # type: ignore[arg-type]


def manifests(world: World) -> list[names.Name]:
    return [parsed for name in world.files("manifest") if (parsed := names.parse(name))]


def opening_reads(world: World) -> list[str]:
    """The manifests that are read by opening."""
    read: list[str] = []
    process = world.fs.spawn()

    def watch(op: str, path: str, index: int) -> None:
        if op in ("read", "map") and "/manifest/" in path:
            read.append(path)

    process.fault = watch
    store = world.open(fs=process)
    process.fault = None
    assert times(store.scan(0)) == alive(store.epochs()[-1])
    return read


def test_opening_reads_two_manifests_at_most_at_any_epoch(world: World) -> None:
    store = world.open(retain=3)
    most = 0
    for epoch in range(1, EPOCHS + 1):
        store.append(0, batch((1, epoch, str(epoch))))
        if epoch % 3 == 0:
            store.remove(0, epoch - 1, epoch)
        store.snapshot_epoch(epoch)
        if epoch % 7 == 1 or epoch in (63, 65, 66, 127, 128, 129):
            most = max(most, len(opening_reads(world)))
    assert most == 2


def test_most_manifests_are_deltas_and_some_are_full(world: World) -> None:
    grown(world, EPOCHS, retain=EPOCHS)
    kinds = [name.kind for name in manifests(world)]
    assert kinds.count("full") == 3
    assert kinds.count("delta") == EPOCHS - 3


def test_every_epoch_of_a_long_history_can_be_opened(world: World) -> None:
    grown(world, EPOCHS, retain=EPOCHS).close()
    store = world.open(retain=EPOCHS)
    assert store.epochs() == list(range(1, EPOCHS + 1))
    for epoch in (1, 2, 3, 63, 64, 65, 66, 100, 128, 129, EPOCHS):
        with store.at_epoch(epoch) as view:
            assert times(view.scan(0)) == alive(epoch)
    assert store.verify() == []


def test_retired_manifests_go_and_needed_bases_stay(world: World) -> None:
    store = grown(world, 60)
    assert {name.epoch for name in manifests(world)} == {1, 58, 59, 60}  # 1 is the base of the others
    assert len([name for name in world.files("manifest") if names.parse_head(name)]) == 3
    store.restore(59)
    assert times(world.open().scan(0)) == alive(59)


@pytest.mark.parametrize("epochs", [2, 5, 70])
def test_missing_heads_are_not_a_fresh_start(world: World, epochs: int) -> None:
    grown(world, epochs).close()
    tree = {path: data for path, data in world.fs.tree().items() if "/head-" not in path}
    damaged = SimFileSystem.of(tree)
    with pytest.raises(CorruptionError, match="the head of the newest epoch"):
        world.open(fs=damaged)
    assert damaged.tree() == tree


@pytest.mark.parametrize("gone", ["head", "base"])
def test_damaged_newest_manifest_is_an_error_and_not_an_older_epoch(world: World, gone: str) -> None:
    store = grown(world, 5)
    head = max(name for name in world.files("manifest") if names.parse_head(name))
    store.close()
    tree = world.fs.tree()
    base = next(path for path in tree if path.endswith(".full"))
    target = f"{PATH}/manifest/{head}" if gone == "head" else base
    content = tree[target]
    assert content is not None
    for data in (b"", content[: len(content) // 2], b"x" + content[1:]):
        with pytest.raises(CorruptionError):
            world.open(fs=SimFileSystem.of({**tree, target: data}))
    if gone == "base":
        with pytest.raises(LsmStateError):
            world.open(fs=SimFileSystem.of({path: data for path, data in tree.items() if path != base}))


def test_missing_file_of_the_newest_epoch_is_corruption_and_verify_names_it(world: World) -> None:
    grown(world, 2).close()
    tree = world.fs.tree()
    victim = next(path for path in tree if path.endswith(".sst"))
    damaged = SimFileSystem.of({path: data for path, data in tree.items() if path != victim})
    store = world.open(fs=damaged)
    assert [problem.path for problem in store.verify()] == [victim]
    with pytest.raises(LsmStateError):
        rows_of(store.scan(0))


def test_handle_can_write_more_files_than_six_digits_can_count(world: World) -> None:
    store = world.open()
    for _ in range(999_998):
        store._core.next_number()
    for epoch in (1, 2):
        store.append(0, batch((1, epoch, "x")))
        store.snapshot_epoch(epoch)
    store.close()
    assert times(world.open().scan(0)) == [1, 2]
