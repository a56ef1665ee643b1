"""The manifest of a pipeline's checkpoint, assembled from what its tasks have reported. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lsmstate.checkpoint.coordinator.phases import OperatorSnapshot
from lsmstate.checkpoint.manifest.manifest import PENDING, CheckpointManifest, ConnectorCheckpoint
from lsmstate.checkpoint.manifest.packing import Packed, State, pack_states
from lsmstate.checkpoint.runtime.graph import Graph

ENDED = "ended"  # in the metadata of a source that has given all its rows


def assemble(
    graph: Graph,
    checkpoint_id: int,
    epoch: int,
    incarnation: int,
    snapshots: Mapping[str, OperatorSnapshot],
    staged: Mapping[str, bytes],
    parent: CheckpointManifest | None,
) -> tuple[CheckpointManifest, Packed]:
    """The manifest, and its sidecar in pieces. `staged`: what the sinks told; `parent`: the checkpoint before."""
    states: dict[str, State] = {name: told for name, told in staged.items()}
    for snapshot in snapshots.values():
        states |= snapshot.state or {}
    packed = pack_states(states, {name: s.inflight for name, s in snapshots.items() if s.inflight}, parent=parent)
    sources = {name: snapshots[name] for name in graph.sources}
    walled = {name: s.wal_position for name, s in sources.items() if s.wal_position is not None}
    marks = [s.watermark for s in sources.values()]
    tables = {name: told for s in snapshots.values() for name, told in s.tables.items()}
    manifest = CheckpointManifest.new(
        checkpoint_id,
        epoch,
        source_offsets={
            name: ConnectorCheckpoint(s.offsets or {}, epoch, {ENDED: "true"} if s.has_ended else {})
            for name, s in sources.items()
        },
        sink_epochs=dict.fromkeys(graph.sinks, epoch),
        sink_commit_statuses=dict.fromkeys(graph.sinks, PENDING),
        table_offsets={name: ConnectorCheckpoint(offsets, epoch) for name, offsets in tables.items()},
        table_store_checkpoint_path=_path(packed, list(tables)),
        wal_position=next(iter(walled.values())) if len(walled) == 1 else None,
        per_core_wal_positions=walled,
        watermark=None if None in marks else min((mark for mark in marks if mark is not None), default=None),
        source_watermarks={name: s.watermark for name, s in sources.items() if s.watermark is not None},
        source_names=tuple(graph.sources),
        sink_names=tuple(graph.sinks),
        pipeline_hash=graph.hash(),
        incarnation=incarnation,
        size_bytes=sum(s.size_bytes for s in snapshots.values()) + sum(map(len, staged.values())),
    )
    return packed.into(manifest), packed


def _path(packed: Packed, tables: list[str]) -> str | None:
    """Where the stores of the reference tables lie: of a single one the directory, of several the one above all."""
    found = [packed.operator_states[name].lsm for name in tables if name in packed.operator_states]
    directories = [state.directory for state in found if state is not None]
    if len(directories) > 1:
        return directories[0].partition("/")[0]
    return directories[0] if directories else None
