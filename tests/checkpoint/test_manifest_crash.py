"""Crashes and errors after every file operation: the last acknowledged checkpoint is there, or a newer whole one."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lsmstate.checkpoint.manifest.manifest import COMMITTED, PENDING, CheckpointManifest
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.errors import LsmStateError
from tests.support.checkpoints import PATH, committed, saved, store_on
from tests.support.crash import crash_images, crash_points
from tests.support.simfs import SimFileSystem, fail_at

SEED = 20_261_118
IMAGES = 24
BASE = b"base" * 3000

State = dict[int, CheckpointManifest]
Step = Callable[[ManifestStore, State], State]


def save(own: int, *, leans: bool = False) -> Step:
    """Saves a checkpoint with a sidecar; one that leans shares most of it with the newest."""

    def step(store: ManifestStore, before: State) -> State:
        parent = before[max(before)] if leans else None
        states = {"shared": BASE, "own": b"%d" % own * 5000}
        made = saved(
            store, own, {**states}, parent=parent, sink_epochs={"out": own}, sink_commit_statuses={"out": PENDING}
        )
        assert made.is_incremental == leans
        return {**before, own: made}

    return step


def update(own: int) -> Step:
    def step(store: ManifestStore, before: State) -> State:
        store.update(committed(before[own]))
        return {**before, own: committed(before[own])}

    return step


def prune(retain: int) -> Step:
    def step(store: ManifestStore, before: State) -> State:
        gone = store.prune(retain)
        return {own: manifest for own, manifest in before.items() if own not in gone}

    return step


def discard(own: int) -> Step:
    def step(store: ManifestStore, before: State) -> State:
        assert store.discard(own)
        return {kept: manifest for kept, manifest in before.items() if kept != own}

    return step


def orphans(*ids: int) -> Step:
    def step(store: ManifestStore, before: State) -> State:
        store.remove_orphans(ids)
        return {own: manifest for own, manifest in before.items() if own not in ids}

    return step


STEPS: list[Step] = [
    *(save(1), update(1), save(2, leans=True), update(2), save(3, leans=True), prune(1), update(3)),
    *(save(4), update(4), prune(1), save(5), save(6), update(6), discard(5), orphans(6), save(7), prune(1)),
    *(save(8), update(8), discard(8)),
]


@dataclass(frozen=True)
class Acknowledged:
    """What must be there from this entry of the journal on."""

    at: int
    state: State


def run(fs: SimFileSystem) -> list[Acknowledged]:
    """The whole life of a store, and when what was acknowledged."""
    store, state, told = store_on(fs), State(), [Acknowledged(0, {})]
    for step in STEPS:
        state = step(store, state)
        told.append(Acknowledged(len(fs.journal), state))
    return told


def check(image: SimFileSystem, before: State, after: State, label: str) -> None:
    """A disk that a crash left between two acknowledgements."""
    store = store_on(image)
    found = {own: store.load(own) for own in {*before, *after, *store.ids()}}
    for own, manifest in found.items():
        assert manifest in (before.get(own), after.get(own)), f"{label}: checkpoint {own}"
    for entry in store.list():
        assert entry.problem is None, f"{label}: {entry.problem}"
    recovered = store.recover()
    assert recovered.skipped == (), label
    newest = [state[max(state)] if state else None for state in (before, after)]
    assert recovered.manifest in newest, label
    if recovered.manifest is not None:
        states = store.states(recovered.manifest)
        assert states.get("shared") == BASE, label
        assert states.get("own") == b"%d" % recovered.manifest.checkpoint_id * 5000, label
    store.remove_orphans()
    assert store.recover().manifest == recovered.manifest, label
    again = saved(store, 100, {"own": BASE})
    assert store.recover().manifest == again, label


def crash_everywhere(fs: SimFileSystem) -> int:
    """Checks every disk that a crash at any time may leave; gives how many there were."""
    told = run(fs)
    rng, count, now = random.Random(SEED), 0, 0
    for at in crash_points(fs):
        while now + 1 < len(told) and told[now + 1].at <= at:
            now += 1
        after = told[min(now + 1, len(told) - 1)].state
        for image in crash_images(fs, at, rng, IMAGES):
            check(image, told[now].state, after, f"seed {SEED}, after {at} entries of the journal")
            count += 1
    return count


def test_crash_after_any_operation_leaves_the_acknowledged_checkpoint_or_a_newer_whole_one() -> None:
    assert crash_everywhere(SimFileSystem()) > 500


def test_crash_while_two_revisions_are_removed_never_brings_the_older_one_back() -> None:
    fs = SimFileSystem()
    before = save(1)(store_on(fs), {})
    older = fs.tree()
    after = update(1)(store_on(fs), before)
    both = SimFileSystem.of({**older, **fs.tree()})
    assert sorted(both.list_dir(PATH)) == ["000000000001.0.json", "000000000001.1.json", "000000000001.state"]
    assert store_on(both).discard(1)
    rng = random.Random(SEED)
    for at in crash_points(both):
        for image in crash_images(both, at, rng, IMAGES):
            check(image, after, {}, f"seed {SEED}, after {at} entries of the journal")


class NoDirectorySync(SimFileSystem):
    def sync_dir(self, path: str) -> None:
        if path != PATH:
            super().sync_dir(path)


class NoDirectoryOfItsOwn(SimFileSystem):
    def sync_dir(self, path: str) -> None:
        if path == PATH:
            super().sync_dir(path)


class NoFileSync(SimFileSystem):
    suffix = ""

    def create(self, path: str):  # type: ignore[no-untyped-def]
        file = super().create(path)
        if path.endswith(self.suffix):
            file.sync = lambda: None  # type: ignore[method-assign]
        return file


class NoManifestSync(NoFileSync):
    suffix = ".draft"


class NoSidecarSync(NoFileSync):
    suffix = ".state"


@pytest.mark.parametrize("broken", [NoDirectorySync, NoDirectoryOfItsOwn, NoManifestSync, NoSidecarSync])
def test_crash_test_finds_a_store_that_forgets_to_sync(broken: type[SimFileSystem]) -> None:
    with pytest.raises((AssertionError, LsmStateError)):
        crash_everywhere(broken())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_error_at_any_operation_of_a_save_leaves_the_checkpoint_before(code: int, late: bool) -> None:
    start = SimFileSystem()
    first = save(1)(store_on(start), {})
    probe = start.copy()
    save(2, leans=True)(store_on(probe), first)
    for index in range(probe.ops):
        fs = start.copy()
        if late:
            fs.fault_after = fail_at(index, code)
        else:
            fs.fault = fail_at(index, code)
        made = first
        with contextlib.suppress(OSError):
            made = save(2, leans=True)(store_on(fs), first)
        fs.fault = fs.fault_after = None
        store = store_on(fs)
        found = store.recover()
        assert found.skipped == ()
        assert found.manifest in ([made[2]] if 2 in made else [first[1], store.load(2)])
        store.discard(2)
        store.remove_orphans()
        assert store.recover().manifest == first[1]
        assert sorted(fs.list_dir(PATH)) == ["000000000001.0.json", "000000000001.state"]
        save(3, leans=True)(store, first)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_error_at_any_operation_of_an_update_leaves_old_or_new_statuses(late: bool) -> None:
    start = SimFileSystem()
    first = save(1)(store_on(start), {})
    probe = start.copy()
    update(1)(store_on(probe), first)
    for index in range(probe.ops):
        fs = start.copy()
        if late:
            fs.fault_after = fail_at(index, errno.EIO)
        else:
            fs.fault = fail_at(index, errno.EIO)
        acknowledged = False
        with contextlib.suppress(OSError):
            update(1)(store_on(fs), first)
            acknowledged = True
        fs.fault = fs.fault_after = None
        found = store_on(fs).recover().manifest
        assert found == committed(first[1]) or (found == first[1] and not acknowledged)
        update(1)(store_on(fs), first)
        again = store_on(fs).load(1)
        assert again is not None
        assert again.sink_commit_statuses == {"out": COMMITTED}
