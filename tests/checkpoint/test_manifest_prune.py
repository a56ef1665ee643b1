"""What the store of manifests removes: what is old and what is orphaned, never what something else needs."""

from __future__ import annotations

import pytest

from lsmstate.checkpoint.manifest.manifest import CheckpointManifest
from tests.support.checkpoints import BIG, PATH, files, saved, sinks, store_on
from tests.support.simfs import SimFileSystem


def test_prune_keeps_the_newest_and_those_that_are_named() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    for own in range(1, 7):
        saved(store, own, {"a": BIG + bytes([own])})
    assert store.prune(10) == []
    assert store.prune(2, keep=[1]) == [2, 3, 4]
    assert store.ids() == [1, 5, 6]
    assert {name[:12] for name in files(fs)} == {"000000000001", "000000000005", "000000000006"}


@pytest.mark.parametrize("retain", [0, -1])
def test_prune_to_nothing_is_refused(retain: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        store_on(SimFileSystem()).prune(retain)


def test_prune_never_cuts_the_parents_of_what_stays() -> None:
    store = store_on(SimFileSystem())
    whole = saved(store, 1, {"a": BIG * 9, "b": b"0" + BIG})
    child = whole
    for own in range(2, 6):
        child = saved(store, own, {"a": BIG * 9, "b": b"%d" % own + BIG}, parent=child)
    assert child.parent_id == 1
    assert store.prune(1) == [2, 3, 4]
    assert store.ids() == [1, 5]
    assert store.recover().manifest == child
    assert store.states(child).get("a") == BIG * 9
    assert saved(store, 6, {"a": b"new"}).parent_id is None
    assert store.prune(1) == [1, 5]


def test_prune_follows_long_chains_and_chains_of_what_is_kept_by_name() -> None:
    store = store_on(SimFileSystem())
    for own, parent in ((1, None), (2, 1), (3, 2), (4, None), (5, 3), (6, None)):
        store.save(CheckpointManifest.new(own, own, is_incremental=parent is not None, parent_id=parent))
    assert store.prune(1, keep=[5]) == [4]
    assert store.ids() == [1, 2, 3, 5, 6]


def test_prune_does_not_count_what_cannot_be_used() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    for own in range(1, 5):
        saved(store, own, {"a": BIG + bytes([own])})
    for own in (3, 4):
        fs.unlink(f"{PATH}/{own:012d}.state")
    assert store.prune(1) == [1]
    assert store.ids() == [2, 3, 4]
    good = store.recover().manifest
    assert good is not None
    assert good.checkpoint_id == 2


def test_prune_removes_nothing_if_nothing_is_usable() -> None:
    tree: dict[str, bytes | None] = {f"{PATH}/{own:012d}.0.json": b"rubbish" for own in range(1, 4)}
    store = store_on(SimFileSystem.of(tree))
    assert store.prune(1) == []
    assert store.ids() == [1, 2, 3]


def test_orphans_go_and_nothing_else_does() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    first, second = sinks(store), saved(store, 2, {"b": BIG})
    fs = SimFileSystem.of(
        {
            **fs.tree(),
            f"{PATH}/000000000003.state": b"no manifest",
            f"{PATH}/000000000003.{'0' * 32}.draft": b"half",
            f"{PATH}/notes.txt": b"of somebody",
        }
    )
    store = store_on(fs)
    assert store.remove_orphans() == ["000000000003.00000000000000000000000000000000.draft", "000000000003.state"]
    assert store.remove_orphans() == []
    assert [store.load(1), store.load(2)] == [first, second]
    assert "notes.txt" in files(fs)
    assert store.remove_orphans([2]) == ["000000000002.0.json", "000000000002.state"]
    assert store.ids() == [1]


def test_what_others_lean_on_is_no_orphan() -> None:
    store = store_on(SimFileSystem())
    whole = saved(store, 1, {"a": BIG})
    child = saved(store, 2, {"a": BIG}, parent=whole)
    assert store.remove_orphans([1]) == []
    with pytest.raises(ValueError, match="leans on checkpoint 1"):
        store.discard(1)
    assert store.recover().manifest == child
    assert store.discard(2)
    assert store.discard(1)
    assert store.ids() == []
