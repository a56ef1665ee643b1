"""Recovery: the newest checkpoint that is whole, what was passed over and why, and never a fresh start by accident."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lsmstate.checkpoint.manifest.document import decode_manifest, encode_manifest, manifest_name
from lsmstate.checkpoint.manifest.manifest import COMMITTED, PENDING, CheckpointManifest
from lsmstate.errors import CorruptionError, FormatVersionError
from tests.support.checkpoints import PATH, saved, store_on
from tests.support.simfs import SimFileSystem

BIG = b"state" * 1000


def damaged(fs: SimFileSystem, **files: bytes | None) -> SimFileSystem:
    """A copy of the disk with some files exchanged, or (None) gone; `m3` is the manifest of 3, `s3` its sidecar."""
    tree = fs.tree()
    for key, data in files.items():
        own = int(key[1:])
        path = f"{PATH}/{manifest_name(own, 0)}" if key[0] == "m" else f"{PATH}/{own:012d}.state"
        if data is None:
            del tree[path]
        else:
            tree[path] = data
    return SimFileSystem.of(tree)


def three() -> SimFileSystem:
    fs = SimFileSystem()
    for own in (1, 2, 3):
        saved(store_on(fs), own, {"a": BIG + bytes([own])}, incarnation=own)
    return fs


def test_newest_valid_checkpoint_is_recovered_with_nothing_skipped() -> None:
    found = store_on(three()).recover()
    assert found.manifest is not None
    assert found.manifest.checkpoint_id == 3
    assert (found.skipped, found.warnings, found.rolls_forward, found.is_behind) == ((), (), False, False)


def test_skipped_ones_are_told_newest_first_with_the_reason() -> None:
    found = store_on(damaged(three(), m3=b"rubbish", s2=b"rubbish")).recover()
    assert found.manifest is not None
    assert found.manifest.checkpoint_id == 1
    assert [(skip.id, skip.damaged) for skip in found.skipped] == [(3, True), (2, True)]
    assert "expected a manifest of a checkpoint" in found.skipped[0].why
    assert "SHA-256" in found.skipped[1].why


def test_wrong_checksum_of_the_sidecar_is_not_ignored() -> None:
    fs = damaged(three(), s3=b"x" + BIG[1:] + b"\x03")
    assert [skip.id for skip in store_on(fs).recover().skipped] == [3]


def test_missing_sidecar_is_corruption_and_never_empty_state_with_advanced_offsets() -> None:
    store = store_on(damaged(three(), s3=None))
    newest = store.load(3)
    assert newest is not None
    with pytest.raises(CorruptionError, match="expected the sidecar of a checkpoint, got nothing"):
        store.sidecar(newest)
    with pytest.raises(CorruptionError):
        store.states(newest)
    found = store.recover()
    assert found.manifest == store.load(2)
    assert [skip.id for skip in found.skipped] == [3]


def test_manifest_that_tells_of_no_sidecar_gives_none() -> None:
    store = store_on(SimFileSystem())
    with pytest.raises(CorruptionError, match="one that has none"):
        store.sidecar(saved(store, 1))


def test_no_valid_manifest_among_some_is_an_error_and_no_fresh_start() -> None:
    store = store_on(damaged(three(), m1=b"", m2=b"{}", m3=b"rubbish"))
    with pytest.raises(CorruptionError, match=r"expected a valid checkpoint, got checkpoint 3: .*checkpoint 1: "):
        store.recover()
    with pytest.raises(CorruptionError):
        store.latest()


@pytest.mark.parametrize("tree", [{}, {f"{PATH}/000000000001.state": b"left"}])
def test_missing_manifests_are_no_fresh_start_if_the_catalog_knows_an_epoch(tree: dict[str, bytes | None]) -> None:
    store = store_on(SimFileSystem.of(tree))
    assert store.recover().manifest is None
    assert store.recover(at_most=0, incarnation=1, committed=()).manifest is None
    with pytest.raises(CorruptionError, match="a checkpoint of epoch 4 or before, got no manifest at all"):
        store.recover(at_most=4)


def test_latest_that_is_damaged_raises_and_is_not_passed_over() -> None:
    with pytest.raises(CorruptionError, match=r"000000000003\.0\.json"):
        store_on(damaged(three(), m3=b"rubbish")).latest()


def test_committed_manifest_that_is_gone_is_told() -> None:
    found = store_on(damaged(three(), m3=None)).recover(at_most=3, committed=[1, 2, 3])
    assert found.manifest is not None
    assert (found.manifest.checkpoint_id, found.is_behind) == (2, True)
    assert [(skip.id, skip.why) for skip in found.skipped] == [(3, "its manifest is missing")]


# ---- the catalog decides


def test_durable_manifest_of_the_driver_before_is_rolled_forward() -> None:
    found = store_on(three()).recover(at_most=2, incarnation=3)
    assert found.manifest is not None
    assert (found.manifest.checkpoint_id, found.rolls_forward, found.is_behind) == (3, True, False)


@pytest.mark.parametrize("incarnation", [None, 2, 4])
def test_newer_manifest_of_any_other_driver_was_never_committed(incarnation: int | None) -> None:
    found = store_on(three()).recover(at_most=2, incarnation=incarnation)
    assert found.manifest is not None
    assert (found.manifest.checkpoint_id, found.rolls_forward) == (2, False)
    assert [(skip.id, skip.damaged) for skip in found.skipped] == [(3, False)]
    assert found.skipped[0].why == "epoch 3 was never committed: the catalog is at epoch 2"


def test_checkpoints_that_were_never_committed_leave_a_fresh_start() -> None:
    found = store_on(three()).recover(at_most=0, incarnation=9)
    assert found.manifest is None
    assert [skip.id for skip in found.skipped] == [3, 2, 1]


def test_what_was_never_committed_is_not_damage_even_if_its_sidecar_is_gone() -> None:
    found = store_on(damaged(three(), s3=None, s2=None, s1=None)).recover(at_most=0, incarnation=9)
    assert found.manifest is None
    assert not any(skip.damaged for skip in found.skipped)


def test_attempt_of_another_driver_at_a_committed_epoch_is_never_taken() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    for own, epoch in ((1, 1), (2, 2), (3, 2)):
        saved(store, own, {"a": BIG}, epoch=epoch)
    found = store_on(damaged(fs, m3=b"rubbish")).recover(at_most=2, committed=[1, 3])
    assert found.manifest is not None
    assert found.manifest.checkpoint_id == 1
    assert found.is_behind
    assert found.skipped[1].why == "an attempt at epoch 2 that was never committed"


def test_newest_is_by_id_because_a_restore_goes_back_in_epochs() -> None:
    store = store_on(SimFileSystem())
    for own, epoch in ((1, 1), (2, 2), (3, 3), (4, 2)):
        saved(store, own, epoch=epoch)
    found = store.recover(at_most=2, committed=[1, 2, 4])
    assert found.manifest is not None
    assert found.manifest.checkpoint_id == 4


def test_incarnation_without_the_last_epoch_is_misuse() -> None:
    with pytest.raises(ValueError, match="give at_most too"):
        store_on(SimFileSystem()).recover(incarnation=1)


def test_pending_sink_of_the_recovered_checkpoint_is_to_be_committed() -> None:
    store = store_on(SimFileSystem())
    sinks: dict[str, Any] = {"sink_epochs": {"a": 2, "b": 2}, "sink_commit_statuses": {"a": COMMITTED, "b": PENDING}}
    saved(store, 2, **sinks, incarnation=1)
    found = store.recover(at_most=1, incarnation=1)
    assert found.manifest is not None
    assert found.manifest.uncommitted_sinks == {"b": 2}


# ---- validity, versions, parents


def forged(fs: SimFileSystem, own: int, **more: Any) -> SimFileSystem:
    """The manifest of a checkpoint with other fields and a right checksum."""
    name = manifest_name(own, 0)
    data = fs.tree()[f"{PATH}/{name}"]
    assert data is not None
    changed = replace(decode_manifest(name, data, name), **more)
    return damaged(fs, **{f"m{own}": encode_manifest(name, changed)})


def test_errors_of_validate_stop_recovery_and_warnings_are_reported() -> None:
    found = store_on(forged(three(), 3, is_incremental=True)).recover()
    assert [skip.id for skip in found.skipped] == [3]
    assert "parent_id: is missing" in found.skipped[0].why
    found = store_on(forged(three(), 3, timestamp_ms=0)).recover()
    assert found.manifest is not None
    assert [problem.field for problem in found.warnings] == ["timestamp_ms"]


def test_manifest_from_the_future_is_refused_and_not_passed_over() -> None:
    fs = forged(three(), 3, version=2)
    store = store_on(fs)
    for act in (store.recover, store.latest, lambda: store.load(3)):
        with pytest.raises(FormatVersionError, match="written in format 2"):
            act()
    listed = store.list()[-1]
    assert (listed.id, listed.epoch) == (3, None)
    assert "format 2" in (listed.problem or "")


def test_manifest_under_another_name_is_refused() -> None:
    fs = three()
    fs = damaged(fs, m3=fs.tree()[f"{PATH}/{manifest_name(2, 0)}"])
    assert [skip.id for skip in store_on(fs).recover().skipped] == [3]
    assert "the manifest 000000000003.0.json, got another" in store_on(fs).recover().skipped[0].why
    fs = forged(three(), 3, checkpoint_id=4)
    assert "expected checkpoint 3, got 4" in store_on(fs).recover().skipped[0].why


def chain() -> SimFileSystem:
    """1 is whole, 2 is whole, 3 leans on 2."""
    fs = SimFileSystem()
    store = store_on(fs)
    saved(store, 1, {"a": BIG})
    saved(store, 3, {"a": BIG}, parent=saved(store, 2, {"a": BIG}))
    return fs


@pytest.mark.parametrize("gone", ["m2", "s2"])
def test_checkpoint_whose_parent_was_pruned_by_hand_is_skipped(gone: str) -> None:
    found = store_on(damaged(chain(), **{gone: None})).recover()
    assert found.manifest is not None
    assert found.manifest.checkpoint_id == 1
    assert found.skipped[0].id == 3


def test_chain_that_is_cut_anywhere_is_skipped_even_if_no_bytes_lie_there() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    for own, parent in ((1, None), (2, None), (3, 2), (4, 3)):
        store.save(CheckpointManifest.new(own, own, is_incremental=parent is not None, parent_id=parent))
    found = store_on(damaged(fs, m2=None)).recover()
    assert found.manifest is not None
    assert found.manifest.checkpoint_id == 1
    assert ["checkpoint 2, the parent of 3" in skip.why for skip in found.skipped] == [True, True]


def test_checkpoint_whose_parent_is_damaged_is_skipped() -> None:
    for damage in ({"s2": BIG[:-1] + b"!"}, {"m2": b"rubbish"}):
        found = store_on(damaged(chain(), **damage)).recover()
        assert found.manifest is not None
        assert [found.manifest.checkpoint_id, [skip.id for skip in found.skipped]] == [1, [3, 2]]


def test_highest_readable_revision_counts() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    first = saved(store, 1, {"a": BIG}, sink_epochs={"out": 1}, sink_commit_statuses={"out": PENDING})
    tree = {**fs.tree(), f"{PATH}/{manifest_name(1, 3)}": b"rubbish"}
    fs = SimFileSystem.of(tree)
    store = store_on(fs)
    assert store.recover().manifest == first
    done = replace(first, sink_commit_statuses={"out": COMMITTED})
    store.update(done)
    assert store.load(1) == done
    assert [name for name in sorted(fs.list_dir(PATH)) if name.endswith("json")] == [manifest_name(1, 4)]
