"""Manifests for tests: one with every field set, any valid one at random, and a store of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from iopool import FileSystem
from lsmstate.checkpoint.manifest.manifest import (
    COMMITTED,
    PENDING,
    CheckpointManifest,
    ConnectorCheckpoint,
    SinkCommitStatus,
    failed,
)
from lsmstate.checkpoint.manifest.operator_state import InflightRecords, LsmState, OperatorState, StateFile
from lsmstate.checkpoint.manifest.packing import State, pack_states
from lsmstate.checkpoint.manifest.store import ManifestStore
from tests.support.simfs import SimFileSystem

PATH = "/jobs/ads/checkpoints"
CANDIDATE = "000000000009-000001-abc-000003.full"
SST = "000000000009-000001-abc-000002.sst"
SHA = "ab" * 32
BIG = b"state" * 1000  # too large for a manifest
LSM = OperatorState(lsm=LsmState(CANDIDATE, "join/p-00000", (StateFile(SST, 4096, "0f" * 16),)))


def full_manifest(checkpoint_id: int = 12, epoch: int = 9, **more: Any) -> CheckpointManifest:
    """A valid manifest that sets every field but those of the sidecar to something that is no default."""
    return CheckpointManifest(
        **{
            "version": 1,
            "checkpoint_id": checkpoint_id,
            "epoch": epoch,
            "timestamp_ms": 1_700_000_000_000,
            "source_offsets": {
                "clicks": ConnectorCheckpoint({"0": "17", "1": "4"}, epoch, {"topic": "clicks"}),
                "views": ConnectorCheckpoint({"file": "b.parquet"}, epoch),
            },
            "sink_epochs": {"out": epoch, "audit": epoch},
            "sink_commit_statuses": {"out": PENDING, "audit": failed("disk full")},
            "table_offsets": {"ads": ConnectorCheckpoint({"row": "5"}, epoch - 1)},
            "operator_states": {"count": OperatorState(inline=b"\x00\xff"), "join": LSM},
            "table_store_checkpoint_path": "tables/ads",
            "wal_position": 77,
            "per_core_wal_positions": {"w0": 3, "w1": 4},
            "watermark": -5,
            "source_watermarks": {"clicks": 100},
            "source_names": ("clicks", "views"),
            "sink_names": ("audit", "out"),
            "pipeline_hash": "f00d",
            "inflight_data": {"join": {"left": InflightRecords((OperatorState(inline=b"rows"),))}},
            "incarnation": 3,
            **more,
        }
    )


def told(**more: Any) -> dict[str, Any]:
    """The JSON of a manifest, with some fields exchanged."""
    return {**json.loads(json.dumps(full_manifest().to_json())), **more}


def problems(severity: str, manifest: CheckpointManifest) -> set[str]:
    """The fields that `validate` finds something of this severity in."""
    return {problem.field for problem in manifest.validate() if problem.severity == severity}


def saved(
    store: ManifestStore,
    checkpoint_id: int,
    states: dict[str, State] | None = None,
    *,
    parent: CheckpointManifest | None = None,
    **more: Any,
) -> CheckpointManifest:
    """Saves a small checkpoint; its epoch is its id unless told."""
    packed = pack_states(states or {}, more.pop("inflight", None), parent=parent)
    manifest = CheckpointManifest.new(checkpoint_id, more.pop("epoch", checkpoint_id), **more)
    return store.save(packed.into(manifest), packed.sidecar)


def sinks(store: ManifestStore, own: int = 1) -> CheckpointManifest:
    """Saves a checkpoint with a sink that has not committed."""
    return saved(store, own, {"a": BIG}, sink_epochs={"out": own}, sink_commit_statuses={"out": PENDING})


def committed(manifest: CheckpointManifest) -> CheckpointManifest:
    """The same, all sinks committed."""
    return replace(manifest, sink_commit_statuses=dict.fromkeys(manifest.sink_epochs, COMMITTED))


def store_on(fs: FileSystem) -> ManifestStore:
    """A store at the usual place."""
    return ManifestStore(fs, PATH)


def files(fs: SimFileSystem) -> set[str]:
    """The names of all files of the store."""
    return {path.removeprefix(f"{PATH}/") for path, data in fs.tree().items() if data is not None}


def during(fs: SimFileSystem, op: str, suffix: str, act: Callable[[], object]) -> None:
    """Has something else happen just before the first operation of this kind."""
    waiting = [act]

    def fault(name: str, path: str, index: int) -> None:
        if name == op and path.endswith(suffix) and waiting:
            waiting.pop()()

    fs.fault = fault


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
safe = st.from_regex(r"[0-9a-z_-]{1,12}", fullmatch=True)
blobs = st.binary(max_size=40).map(lambda data: OperatorState(inline=data))
lsm_states = st.builds(
    LsmState,
    safe,
    st.lists(safe, min_size=1, max_size=3).map("/".join),
    st.lists(st.builds(StateFile, safe, st.integers(0, 2**40), st.just("ab" * 16)), max_size=3).map(tuple),
).map(lambda lsm: OperatorState(lsm=lsm))
statuses = st.sampled_from([PENDING, COMMITTED]) | st.builds(SinkCommitStatus, st.just("failed"), texts)


@st.composite
def manifests(draw: st.DrawFn) -> CheckpointManifest:
    """Any valid manifest without a sidecar."""
    epoch = draw(st.integers(1, 10**12 - 1))
    sources, sinks = draw(st.sets(names, max_size=3)), draw(st.sets(names, max_size=3))
    connector = st.builds(
        ConnectorCheckpoint,
        st.dictionaries(texts, texts, max_size=3),
        st.integers(0, epoch),
        st.dictionaries(texts, texts, max_size=2),
    )
    sink_epochs = {sink: draw(st.integers(1, epoch)) for sink in sinks}
    marks = st.integers(-(2**63), 2**63 - 1)
    return CheckpointManifest(
        1,
        draw(st.integers(1, 10**12 - 1)),
        epoch,
        draw(st.integers(1, 2**60)),
        source_offsets={source: draw(connector) for source in sources},
        sink_epochs=sink_epochs,
        sink_commit_statuses={sink: draw(statuses) for sink in sink_epochs},
        table_offsets=draw(st.dictionaries(names, connector, max_size=2)),
        operator_states=draw(st.dictionaries(names, blobs | lsm_states, max_size=3)),
        table_store_checkpoint_path=draw(safe),
        wal_position=draw(st.none() | st.integers(0, 2**63 - 1)),
        per_core_wal_positions=draw(st.dictionaries(names, st.integers(0, 2**63 - 1), max_size=2)),
        watermark=draw(st.none() | marks),
        source_watermarks={source: draw(marks) for source in sources if draw(st.booleans())},
        source_names=tuple(sources),
        sink_names=tuple(sinks),
        pipeline_hash=draw(st.none() | names),
        inflight_data=draw(
            st.dictionaries(
                names,
                st.dictionaries(names, st.builds(InflightRecords, st.lists(blobs, max_size=2).map(tuple)), max_size=2),
                max_size=2,
            )
        ),
        incarnation=draw(st.integers(0, 2**40)),
    )
