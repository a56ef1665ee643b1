"""What can be wrong with a manifest that reads well: contradictions between its fields, and drift of the job.

Pure functions. An *error* means that going on from the manifest would lose or repeat something; a *warning* is told and
nothing else. What an older file legally lacks is at most a warning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lsmstate.checkpoint.manifest.manifest import CheckpointManifest

ID_MAX = 10**12 - 1  # of checkpoints and epochs: names have twelve digits
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and with which field."""

    severity: Literal["error", "warning"]
    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def problems_of(manifest: CheckpointManifest) -> list[Problem]:
    """All problems of a manifest, errors first."""
    found = [*_numbers(manifest), *_connectors(manifest), *_sinks(manifest), *_progress(manifest), *_state(manifest)]
    return sorted(found, key=lambda problem: problem.severity)


def drift(
    manifest: CheckpointManifest,
    *,
    source_names: Collection[str] | None = None,
    sink_names: Collection[str] | None = None,
    pipeline_hash: str | None = None,
) -> list[str]:
    """How a job differs from the one that made the manifest, in words; what is None is not compared."""
    found = []
    for kind, then, now in (
        ("source", manifest.source_names, source_names),
        ("sink", manifest.sink_names, sink_names),
    ):
        if now is not None:
            found += [f"{kind} {own!r} is new since the checkpoint" for own in sorted({*now} - {*then})]
            found += [f"{kind} {own!r} of the checkpoint is gone" for own in sorted({*then} - {*now})]
    if pipeline_hash is not None and manifest.pipeline_hash not in (None, pipeline_hash):
        found.append("the definition of the pipeline has changed since the checkpoint")
    return found


def _numbers(m: CheckpointManifest) -> Iterator[Problem]:
    if m.version < 1:
        yield Problem("error", "version", f"is {m.version}; versions start at 1")
    for own, number in (("checkpoint_id", m.checkpoint_id), ("epoch", m.epoch)):
        if not 1 <= number <= ID_MAX:
            yield Problem("error", own, f"is {number}; it must be from 1 to {ID_MAX}")
    if m.timestamp_ms < 1:
        yield Problem("warning", "timestamp_ms", f"is {m.timestamp_ms}: nobody knows when it was taken")
    for own, number in (("size_bytes", m.size_bytes), ("incarnation", m.incarnation)):
        if number < 0:
            yield Problem("error", own, f"is {number}; it cannot be negative")


def _connectors(m: CheckpointManifest) -> Iterator[Problem]:
    known = {*m.source_names}
    for field, named in (("source_offsets", m.source_offsets), ("source_watermarks", m.source_watermarks)):
        for own in sorted({*named} - known):
            severity: Literal["error", "warning"] = "error" if known else "warning"  # older files name no sources
            yield Problem(severity, field, f"tells of source {own!r}, which source_names does not know")
    for own in sorted(known - {*m.source_offsets}):
        yield Problem("warning", "source_offsets", f"lacks source {own!r}: it would start at its beginning")
    for field, connectors in (("source_offsets", m.source_offsets), ("table_offsets", m.table_offsets)):
        for own, connector in sorted(connectors.items()):
            if not 0 <= connector.epoch <= m.epoch:
                yield Problem("error", field, f"{own!r} is at epoch {connector.epoch}, the checkpoint at {m.epoch}")
    if m.table_store_checkpoint_path is None:
        for own in sorted({*m.table_offsets} - {*m.operator_states}):
            yield Problem("error", "table_offsets", f"table {own!r} has offsets, but nothing tells where its rows are")


def _sinks(m: CheckpointManifest) -> Iterator[Problem]:
    for own, epoch in sorted(m.sink_epochs.items()):
        if not 1 <= epoch <= m.epoch:
            yield Problem("error", "sink_epochs", f"sink {own!r} is at epoch {epoch}, the checkpoint at {m.epoch}")
        status = m.sink_commit_statuses.get(own)
        if status is None:
            yield Problem("warning", "sink_commit_statuses", f"lacks sink {own!r}: recovery commits it, as if pending")
        elif status.state == "failed":
            yield Problem("warning", "sink_commit_statuses", f"sink {own!r} failed to commit: recovery tries it again")
    for own in sorted({*m.sink_commit_statuses} - {*m.sink_epochs}):
        yield Problem("error", "sink_commit_statuses", f"tells of sink {own!r}, which has no epoch")
    if m.sink_names:
        for own in sorted({*m.sink_epochs} - {*m.sink_names}):
            yield Problem("error", "sink_epochs", f"tells of sink {own!r}, which sink_names does not know")


def _progress(m: CheckpointManifest) -> Iterator[Problem]:
    if m.wal_position is not None and m.wal_position < 0:
        yield Problem("error", "wal_position", f"is {m.wal_position}; it cannot be negative")
    for own, position in sorted(m.per_core_wal_positions.items()):
        if position < 0:
            yield Problem("error", "per_core_wal_positions", f"writer {own!r} is at {position}")


def _state(m: CheckpointManifest) -> Iterator[Problem]:
    if m.is_incremental and m.parent_id is None:
        yield Problem("error", "parent_id", "is missing, though the checkpoint is incremental")
    if m.parent_id is not None:
        if not m.is_incremental:
            yield Problem("warning", "parent_id", f"names checkpoint {m.parent_id}, which is not needed")
        if not 1 <= m.parent_id < m.checkpoint_id:
            yield Problem(
                "error", "parent_id", f"is {m.parent_id}; a parent is older than checkpoint {m.checkpoint_id}"
            )
    places = [part.sidecar for part in m.parts() if part.sidecar is not None]
    holders = {place.checkpoint_id for place in places}
    for holder in sorted(holder for holder in holders if holder is not None):
        if holder != m.parent_id or not m.is_incremental:
            yield Problem("error", "operator_states", f"lean on checkpoint {holder}, which is not the parent")
    if m.state_checksum is None:
        if None in holders:
            yield Problem("error", "state_checksum", "is missing, though state lies in the sidecar")
    elif _SHA256.fullmatch(m.state_checksum) is None:
        yield Problem("error", "state_checksum", "is no SHA-256")
    elif None not in holders:
        yield Problem("warning", "state_checksum", "tells of a sidecar that no state lies in")
    told = sum(part.size_bytes for part in m.parts())
    if m.size_bytes > 0 and told != m.size_bytes:
        yield Problem("warning", "size_bytes", f"is {m.size_bytes}, its parts have {told}")
