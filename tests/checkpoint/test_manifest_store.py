"""The store of manifests: what is saved is found again, whole, under an id that is used once."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings

from iopool import LocalFileSystem
from lsmstate.checkpoint.manifest.manifest import PENDING, CheckpointManifest
from lsmstate.checkpoint.manifest.operator_state import OperatorState, Place
from lsmstate.checkpoint.manifest.packing import pack_states
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.errors import CorruptionError, EpochError, FencedError
from tests.support.checkpoints import (
    BIG,
    LSM,
    PATH,
    committed,
    during,
    files,
    full_manifest,
    manifests,
    saved,
    store_on,
)
from tests.support.simfs import SimFileSystem


def test_empty_store_has_nothing_and_makes_nothing() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    assert (store.latest(), store.load(1), store.list(), store.ids()) == (None, None, [], [])
    assert store.recover().manifest is None
    assert (store.prune(1), store.remove_orphans(), store.discard(1)) == ([], [], False)
    assert fs.tree() == {}


def test_saved_checkpoint_is_found_by_id_and_as_the_latest() -> None:
    store = store_on(SimFileSystem())
    first, second = saved(store, 1, {"a": BIG}), saved(store, 7, {"a": b"small"}, epoch=2)
    assert store.load(1) == first
    assert store.latest() == second == store.load(7)
    assert store.load(2) is None
    assert [(entry.id, entry.epoch, entry.problem) for entry in store.list()] == [(1, 1, None), (7, 2, None)]


def test_save_sets_checksum_and_size_of_all_of_it() -> None:
    packed = pack_states({"big": BIG, "small": b"abc", "join": LSM}, {"join": {"left": [b"12", BIG]}})
    manifest = store_on(SimFileSystem()).save(packed.into(CheckpointManifest.new(1, 1)), packed.sidecar)
    assert manifest.size_bytes == 2 * len(BIG) + 3 + 4096 + 2
    assert manifest.state_checksum == sha256(BIG + BIG).hexdigest()
    assert [str(problem) for problem in manifest.validate()] == []


def test_sidecar_may_be_one_buffer_or_many_and_none_is_written_if_it_is_empty() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    parts = {"a": OperatorState(sidecar=Place(0, len(BIG), sha256(BIG).hexdigest()))}
    for own, sidecar in enumerate((BIG, bytearray(BIG), memoryview(BIG), [BIG[:7], memoryview(BIG)[7:]]), 1):
        manifest = store.save(CheckpointManifest.new(own, own, operator_states=parts), sidecar)
        assert store.sidecar(manifest) == BIG
        assert store.states(manifest).get("a") == BIG
    none = store.save(CheckpointManifest.new(9, 9), b"")
    assert none.state_checksum is None
    assert "000000000009.state" not in files(fs)


def test_sidecar_is_durable_before_the_manifest_has_its_name() -> None:
    fs = SimFileSystem()
    saved(store_on(fs), 1, {"a": BIG})
    steps = [(entry.op, entry.path.rpartition("/")[2]) for entry in fs.journal]
    sidecar, manifest = "000000000001.state", "000000000001.0.json"
    order = [("create", sidecar), ("sync", sidecar), ("sync_dir", "checkpoints"), ("link", manifest)]
    assert [step for step in steps if step in order][:4] == order
    assert steps[-1] == ("sync_dir", "checkpoints")


@pytest.mark.parametrize("own", [1, 4, 5])
def test_id_is_used_once_and_ids_only_go_up(own: int) -> None:
    store = store_on(SimFileSystem())
    first = saved(store, 5, {"a": BIG})
    with pytest.raises(EpochError, match="ids go up, and are used once"):
        saved(store, own, {"a": b"other"})
    assert store.latest() == first


def test_id_of_a_save_that_died_after_its_sidecar_is_not_used_again() -> None:
    fs = SimFileSystem.of({f"{PATH}/000000000003.state": b"half"})
    store = store_on(fs)
    with pytest.raises(EpochError):
        saved(store, 3, {"a": BIG})
    assert store.latest() is None
    assert saved(store, 4, {"a": BIG}) == store.latest()


def test_late_write_of_a_failed_id_does_not_land_beside_its_successor() -> None:
    fs = SimFileSystem()
    store, other = store_on(fs), store_on(fs.spawn())
    during(fs, "link", ".0.json", lambda: saved(other, 3, epoch=1))
    with pytest.raises(EpochError):
        saved(store, 2, {"a": BIG}, epoch=1)
    assert store.ids() == [3]
    assert store.remove_orphans() == ["000000000002.state"]


@pytest.mark.parametrize(("op", "suffix"), [("create", ".state"), ("link", ".json")])
def test_of_two_writers_of_one_id_one_wins(op: str, suffix: str) -> None:
    fs = SimFileSystem()
    store, other = store_on(fs), store_on(fs.spawn())
    states = {"a": BIG if suffix == ".state" else b"small"}
    during(fs, op, suffix, lambda: saved(other, 2, {**states}, watermark=7))
    with pytest.raises(EpochError):
        saved(store, 2, {**states})
    found = store.latest()
    assert found is not None
    assert found.watermark == 7
    assert store.recover().manifest == found


def test_writer_whose_draft_was_removed_by_its_successor_is_fenced() -> None:
    fs = SimFileSystem()
    store, other = store_on(fs), store_on(fs.spawn())
    during(fs, "link", ".json", other.remove_orphans)
    with pytest.raises(FencedError, match="taken over"):
        saved(store, 2)
    assert store.ids() == []


def test_invalid_manifest_is_not_saved() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    with pytest.raises(ValueError, match="is not valid: parent_id"):
        store.save(full_manifest(is_incremental=True))
    with pytest.raises(ValueError, match="epoch: a whole number is needed, not float"):
        store.save(full_manifest(epoch=1.5, sink_epochs={}, sink_commit_statuses={}))
    place = OperatorState(sidecar=Place(0, 9, "ab" * 32))
    with pytest.raises(ValueError, match="states end at byte 9 of a sidecar of 4"):
        store.save(full_manifest(operator_states={"a": place}), b"1234")
    with pytest.raises(ValueError, match="leans on checkpoint 3, which is not here"):
        store.save(full_manifest(is_incremental=True, parent_id=3))
    assert files(fs) == set()


def test_every_field_survives_the_file_and_people_can_read_it() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    manifest = store.save(full_manifest())
    assert store.latest() == manifest
    data = fs.tree()[f"{PATH}/000000000012.0.json"]
    assert data is not None
    body = json.loads(data)
    assert body["checkpoint_manifest"] == "000000000012.0.json"
    assert body["manifest"] == manifest.to_json()
    assert len(data.splitlines()) == 25  # a field a line


@settings(max_examples=60)
@given(manifests())
def test_any_manifest_is_loaded_as_it_was_saved(manifest: CheckpointManifest) -> None:
    store = store_on(SimFileSystem())
    assert store.save(manifest) == store.load(manifest.checkpoint_id) == store.recover().manifest


def test_store_works_on_a_real_disk_and_files_are_private(tmp_path: Path) -> None:
    store = ManifestStore(LocalFileSystem(), str(tmp_path / "deep" / "checkpoints"))
    manifest = saved(store, 1, {"a": BIG}, sink_epochs={"out": 1}, sink_commit_statuses={"out": PENDING})
    store.update(committed(manifest))
    assert store.states(committed(manifest)).get("a") == BIG
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "deep" / "checkpoints").iterdir()} == {0o600}
    (tmp_path / "deep" / "checkpoints" / "000000000002.0.json").symlink_to("000000000001.1.json")
    with pytest.raises(CorruptionError, match="regular file"):
        store.load(2)


def test_list_tells_of_damaged_ones_and_what_is_wrong() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    whole = saved(store, 1, {"a": BIG})
    saved(store, 2, {"a": BIG}, parent=whole)
    saved(store, 3, {"a": BIG})
    saved(store, 4)
    for name in ("000000000001.0.json", "000000000003.state"):
        fs.unlink(f"{PATH}/{name}")
    tree = {**fs.tree(), f"{PATH}/000000000005.0.json": b"{}"}
    listed = {entry.id: entry for entry in store_on(SimFileSystem.of(tree)).list()}
    assert listed[2].problem == "its parent, checkpoint 1, is missing"
    assert listed[3].problem == "its sidecar is missing"
    assert listed[4].problem is None
    assert listed[5].epoch is None
    assert "damaged" in (listed[5].problem or "")
