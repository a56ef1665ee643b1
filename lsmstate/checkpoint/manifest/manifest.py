"""The manifest of a checkpoint: all that a job needs to go on from it.

Owns the fields, their JSON and their meaning (FORMAT.md tells both). Immutable values; any thread. Invariants: every
field is always written; a file that lacks any but the first four loads with defaults; a newer version is refused;
`validate` raises nothing and says what is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import Any, Literal

from lsmstate.checkpoint.manifest.json_fields import (
    FieldError,
    digest,
    fields,
    flag,
    items,
    name,
    optional,
    table,
    text,
    whole,
)
from lsmstate.checkpoint.manifest.operator_state import InflightRecords, OperatorState, inflight_table, relative_path
from lsmstate.checkpoint.manifest.problems import Problem, drift, problems_of
from lsmstate.errors import CorruptionError, FormatVersionError

__all__ = ["COMMITTED", "PENDING", "VERSION", "CheckpointManifest", "ConnectorCheckpoint", "InflightRecords"]
__all__ += ["OperatorState", "Problem", "SinkCommitStatus", "drift", "failed"]

VERSION = 1
_MESSAGE_MAX = 1000


@dataclass(frozen=True, slots=True)
class ConnectorCheckpoint:
    """Where a source or a reference table has been read up to, after which epoch."""

    offsets: Mapping[str, str]
    epoch: int
    metadata: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As the manifest tells it."""
        return {"offsets": dict(self.offsets), "epoch": self.epoch, "metadata": dict(self.metadata)}

    @classmethod
    def from_json(cls, told: object) -> ConnectorCheckpoint:
        """What `to_json` told. Raises FieldError if it is something else."""
        found = fields(told, {"offsets", "epoch"}, {"metadata"})
        return cls(_texts(found["offsets"]), whole(found["epoch"]), _texts(found.get("metadata", {})))


@dataclass(frozen=True, slots=True)
class SinkCommitStatus:
    """How far a sink has come with its epoch. Recovery commits whatever is not committed: offsets have moved."""

    state: Literal["pending", "committed", "failed"]
    message: str | None = None

    def to_json(self) -> str | dict[str, str]:
        """As the manifest tells it."""
        return {"failed": self.message or ""} if self.state == "failed" else self.state

    @classmethod
    def from_json(cls, told: object) -> SinkCommitStatus:
        """What `to_json` told. Raises FieldError if it is something else."""
        if isinstance(told, dict):
            return cls("failed", text(fields(told, {"failed"})["failed"]))
        if told == "pending":
            return PENDING
        if told == "committed":
            return COMMITTED
        raise FieldError("pending, committed or failed with a message", "something else")


PENDING = SinkCommitStatus("pending")
COMMITTED = SinkCommitStatus("committed")


def failed(message: str) -> SinkCommitStatus:
    """The status of a sink that could not commit, and why."""
    readable = message.encode("utf-8", "replace").decode()
    return SinkCommitStatus("failed", readable[:_MESSAGE_MAX])


@dataclass(frozen=True)
class CheckpointManifest:
    """One checkpoint. checkpoint_id: the attempt, never repeated. epoch: the cut. Times and watermarks: `timestamp_ms`
    is wall clock, watermarks are microseconds of event time. wal_position, per_core_wal_positions: replay starts
    strictly after them, the latter by writer. inflight_data: by operator and input, replayed before new input; empty
    when the checkpoint was aligned. size_bytes: of all state that it stands for. parent_id: the checkpoint whose
    sidecar holds what has not changed since. state_checksum: SHA-256 of its own sidecar, if it has one. incarnation:
    of the driver that made it."""

    version: int
    checkpoint_id: int
    epoch: int
    timestamp_ms: int
    source_offsets: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    sink_epochs: Mapping[str, int] = field(default_factory=dict)
    sink_commit_statuses: Mapping[str, SinkCommitStatus] = field(default_factory=dict)
    table_offsets: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    operator_states: Mapping[str, OperatorState] = field(default_factory=dict)
    table_store_checkpoint_path: str | None = None
    wal_position: int | None = None
    per_core_wal_positions: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None
    source_watermarks: Mapping[str, int] = field(default_factory=dict)
    source_names: tuple[str, ...] = ()
    sink_names: tuple[str, ...] = ()
    pipeline_hash: str | None = None
    inflight_data: Mapping[str, Mapping[str, InflightRecords]] = field(default_factory=dict)
    size_bytes: int = 0
    is_incremental: bool = False
    parent_id: int | None = None
    state_checksum: str | None = None
    incarnation: int = 0

    def __post_init__(self) -> None:
        for own in ("source_names", "sink_names"):
            object.__setattr__(self, own, tuple(sorted(set(getattr(self, own)))))

    @classmethod
    def new(cls, checkpoint_id: int, epoch: int, **more: Any) -> CheckpointManifest:
        """A manifest of the present version and time; `more` are fields by name."""
        return cls(VERSION, checkpoint_id, epoch, time.time_ns() // 1_000_000, **more)

    def to_json(self) -> dict[str, Any]:
        """All fields, in order, as JSON values."""
        return {own.name: _told(getattr(self, own.name)) for own in fields_of(self)}

    @classmethod
    def from_json(cls, told: object, path: str = "checkpoint manifest") -> CheckpointManifest:
        """What `to_json` told, now or in an older version; `path` is named in errors.

        Raises FormatVersionError if it is of a newer version, CorruptionError if a field is not what it must be.
        """
        version = told.get("version") if isinstance(told, dict) else None
        if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
            raise FormatVersionError(path, version, VERSION)
        own = ""
        try:
            found = fields(told, _NEEDED, set(_READERS) - _NEEDED)
            values = {}
            for own, value in found.items():
                values[own] = _READERS[own](value)
        except FieldError as error:
            where = error.under(own) if own else error
            raise CorruptionError(path, 0, where.expected, where.got) from None
        return cls(**values)

    def validate(self) -> list[Problem]:
        """All that is wrong with it; an error means that nothing can go on from it."""
        return problems_of(self)

    def errors(self) -> list[Problem]:
        """The problems that recovery stops on."""
        return [problem for problem in self.validate() if problem.severity == "error"]

    def parts(self) -> Iterator[OperatorState]:
        """Every state and every blob in flight."""
        yield from self.operator_states.values()
        for inputs in self.inflight_data.values():
            for records in inputs.values():
                yield from records.blobs

    @property
    def uncommitted_sinks(self) -> dict[str, int]:
        """The sinks that recovery has to commit, each with its epoch: all that are not known to be committed."""
        statuses = self.sink_commit_statuses
        return {own: epoch for own, epoch in self.sink_epochs.items() if statuses.get(own, PENDING) != COMMITTED}


def _sorted_names(told: object) -> tuple[str, ...]:
    found = items(name)(told)
    if list(found) != sorted(set(found)):
        raise FieldError("names in order, each once", "others")
    return found


def _told(value: Any) -> Any:
    """A field's value as JSON."""
    if isinstance(value, Mapping):
        return {own: _told(inner) for own, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return value.to_json() if hasattr(value, "to_json") else value


_texts = table(text, text)
_connectors = table(ConnectorCheckpoint.from_json)
_wholes = table(whole)
_NEEDED = {"version", "checkpoint_id", "epoch", "timestamp_ms"}
_READERS: dict[str, Callable[[object], Any]] = {
    **dict.fromkeys(("version", "checkpoint_id", "epoch", "timestamp_ms", "size_bytes", "incarnation"), whole),
    **dict.fromkeys(("wal_position", "watermark", "parent_id"), optional(whole)),
    **dict.fromkeys(("sink_epochs", "per_core_wal_positions", "source_watermarks"), _wholes),
    **dict.fromkeys(("source_offsets", "table_offsets"), _connectors),
    **dict.fromkeys(("source_names", "sink_names"), _sorted_names),
    "sink_commit_statuses": table(SinkCommitStatus.from_json),
    "operator_states": table(OperatorState.from_json),
    "inflight_data": inflight_table,
    "table_store_checkpoint_path": optional(relative_path),
    "pipeline_hash": optional(name),
    "is_incremental": flag,
    "state_checksum": optional(digest),
}
