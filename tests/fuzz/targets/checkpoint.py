"""Manifests of checkpoints (checkpoint/manifest): the document, its fields, what is wrong with them, states in them."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate.checkpoint.manifest.document import _END, _checksum, decode_manifest, encode_manifest, manifest_name
from lsmstate.checkpoint.manifest.manifest import COMMITTED, PENDING, CheckpointManifest, ConnectorCheckpoint, failed
from lsmstate.checkpoint.manifest.packing import pack_states, read_states
from tests.fuzz.kit import documented

NAME = manifest_name(3, 0)
SIDECAR = bytes(range(256)) * 64


def seeds() -> Iterator[tuple[str, bytes]]:
    states = {"small": b"x" * 20, "large": bytes(SIDECAR[:9000]), "none": None}
    packed = pack_states(states, {"join": {"left": [b"one", b"two"]}})
    manifest = CheckpointManifest(
        version=1,
        checkpoint_id=3,
        epoch=7,
        timestamp_ms=1_700_000_000_000,
        source_offsets={"ads": ConnectorCheckpoint({"0": "20"}, 7, {"topic": "ads"})},
        sink_epochs={"out": 7, "other": 6},
        sink_commit_statuses={"out": COMMITTED, "other": failed("no"), "third": PENDING},
        table_offsets={"prices": ConnectorCheckpoint({}, 7)},
        wal_position=48,
        per_core_wal_positions={"a": 1},
        watermark=5,
        source_names=("ads",),
        sink_names=("out",),
    )
    yield "full", encode_manifest(NAME, packed.into(manifest))
    yield "least", encode_manifest(NAME, CheckpointManifest(1, 3, 7, 1))


def run(data: bytes) -> None:
    _decode(data)
    rest = data.partition(b"\n")[2]
    rest = rest if rest.endswith(_END) else rest + _END
    first = f'{{"checkpoint_manifest": "{NAME}", "checksum": "{_checksum(NAME, rest)}", "manifest": {{\n'
    _decode(first.encode() + rest)


def _decode(document: bytes) -> None:
    with documented():
        manifest = decode_manifest("/where", document, NAME)
        manifest.validate()
        assert decode_manifest("/where", encode_manifest(NAME, manifest), NAME) == manifest
        read_states(manifest, lambda _: memoryview(SIDECAR))
