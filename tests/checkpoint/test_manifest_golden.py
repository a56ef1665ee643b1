"""Manifests that every released version wrote can be loaded: `tests/golden/checkpoint-N`.

000000000001 has the first four fields alone, 000000000002 lacks those that came last, 000000000003 has all of them and
a sidecar. A new version gets a directory of its own: `python -m tests.checkpoint.test_manifest_golden DIRECTORY`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import xxhash

from iopool import LocalFileSystem
from lsmstate.checkpoint.manifest.document import DOCUMENT_MAX_BYTES, manifest_name
from lsmstate.checkpoint.manifest.manifest import VERSION, CheckpointManifest
from lsmstate.checkpoint.manifest.operator_state import INLINE_MAX_BYTES
from lsmstate.checkpoint.manifest.packing import INLINE_BYTES, INLINE_TOTAL_BYTES, pack_states
from lsmstate.checkpoint.manifest.store import ManifestStore
from tests.support.checkpoints import LSM, PATH, full_manifest, store_on
from tests.support.simfs import SimFileSystem

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden" / f"checkpoint-{VERSION}"
DOC = (ROOT / "lsmstate/checkpoint/manifest/FORMAT.md").read_text()
STATES = {"big": b"0123456789" * 600, "count": b"\x00\xff", "join": LSM}
LACKING = ("incarnation", "state_checksum", "parent_id", "is_incremental", "size_bytes", "inflight_data")


def whole() -> tuple[CheckpointManifest, tuple[memoryview, ...]]:
    packed = pack_states(STATES, {"join": {"left": [b"rows"]}})
    return packed.into(full_manifest(3, 3)), packed.sidecar


def test_golden_manifests_load_with_defaults_for_what_they_lack() -> None:
    store = ManifestStore(LocalFileSystem(), str(GOLDEN))
    assert store.load(1) == CheckpointManifest(1, 1, 1, 1_700_000_000_000)
    older = store.load(2)
    assert older is not None
    bare = CheckpointManifest(1, 2, 2, 1_700_000_000_000)
    assert all(getattr(older, own) == getattr(bare, own) for own in LACKING)
    assert older.uncommitted_sinks == {"audit": 2, "out": 2}
    assert [entry.problem for entry in store.list()] == [None, None, None]


def test_older_files_can_be_gone_on_from() -> None:
    for own in (1, 2):
        name = manifest_name(own, 0)
        store = store_on(SimFileSystem.of({f"{PATH}/{name}": (GOLDEN / name).read_bytes()}))
        found = store.recover().manifest
        assert found is not None
        assert found.checkpoint_id == own


def test_golden_manifest_with_a_sidecar_is_recovered_to_the_byte() -> None:
    store = ManifestStore(LocalFileSystem(), str(GOLDEN))
    found = store.recover().manifest
    assert found is not None
    assert found.checkpoint_id == 3
    states = store.states(found)
    assert {own: states.get(own) for own in STATES} == {**STATES, "join": LSM.lsm}
    assert states.inflight == {"join": {"left": [b"rows"]}}


def test_files_are_as_the_document_describes_them() -> None:
    for path in GOLDEN.glob("*.json"):
        first, _, rest = path.read_bytes().partition(b"\n")
        match = re.fullmatch(r'\{"checkpoint_manifest": "(.*)", "checksum": "(.*)", "manifest": \{', first.decode())
        assert match is not None
        assert match[1] == path.name
        assert match[2] == xxhash.xxh3_128_hexdigest(f"{path.name}\n".encode() + rest)
        json.loads(path.read_bytes())


def test_document_tells_all_fields_and_limits() -> None:
    rows = [line.split("|")[1] for line in DOC.splitlines() if line.startswith("| ")]
    told = [own.strip() for row in rows[1:] for own in row.split(",")]
    assert told == [*CheckpointManifest(1, 1, 1, 1).to_json()]
    assert f"version {VERSION}\n" in DOC
    limits = [DOCUMENT_MAX_BYTES >> 20, INLINE_BYTES >> 10, INLINE_TOTAL_BYTES >> 10, INLINE_MAX_BYTES >> 10]
    assert limits == [64, 4, 64, 64]
    for words in ("has 64 MiB at most", "Up to 4 KiB go inline, and 64 KiB of all", "a reader takes 64 KiB"):
        assert words in DOC.replace("\n", " ")


def _write(directory: str) -> None:
    """Writes the golden files."""
    store = ManifestStore(LocalFileSystem(), directory)
    manifest, sidecar = whole()
    store.save(manifest, sidecar)
    for own, fields in ((1, 4), (2, 17)):
        name = manifest_name(own, 0)
        body = list(full_manifest(own, own, table_offsets={}).to_json().items())[:fields]
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in body)
        rest = lines.encode() + b"\n}}\n"
        checksum = xxhash.xxh3_128_hexdigest(f"{name}\n".encode() + rest)
        first = f'{{"checkpoint_manifest": "{name}", "checksum": "{checksum}", "manifest": {{\n'
        (Path(directory) / name).write_bytes(first.encode() + rest)


if __name__ == "__main__":
    _write(sys.argv[1])
