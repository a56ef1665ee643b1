"""What the catalog tells: the row of a job and the row of a checkpoint.

Owns their shape and what their fields may hold. Threading: immutable values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

JobKind = Literal["pipeline", "spark", "sql"]
Status = Literal["committed", "left_behind"]
Offsets = Mapping[str, Mapping[str, str]]

KINDS: tuple[JobKind, ...] = ("pipeline", "spark", "sql")
COMMITTED: Status = "committed"
LEFT_BEHIND: Status = "left_behind"
FIRST_LINE = 1
INTERVAL_DEFAULT_MS = 60_000
_WHOLE_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """checkpoint_id: the attempt. epoch: the cut. line: the history that it belongs to. watermark: in microseconds.
    manifest: where the checkpoint's manifest lies. status: "left_behind" once the job was rewound to before it."""

    checkpoint_id: int
    epoch: int
    line: int = FIRST_LINE
    timestamp_ms: int = 0
    size_bytes: int = 0
    watermark: int | None = None
    is_incremental: bool = False
    manifest: str = ""
    status: Status = COMMITTED
    note: str = ""

    def __post_init__(self) -> None:
        for name, least in (("checkpoint_id", 1), ("epoch", 1), ("line", 1), ("timestamp_ms", 0), ("size_bytes", 0)):
            whole(f"CheckpointRow.{name}", getattr(self, name), least)
        if self.watermark is not None:
            whole("CheckpointRow.watermark", self.watermark, -_WHOLE_MAX)
        if self.status not in (COMMITTED, LEFT_BEHIND):
            raise ValueError(f"CheckpointRow.status must be {COMMITTED!r} or {LEFT_BEHIND!r}, not {self.status!r}")
        for name in ("manifest", "note"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"CheckpointRow.{name} must be text")


@dataclass(frozen=True, slots=True)
class JobRow:
    """job_id: new for each creation, so that a job of the same name never finds what an earlier one has left.
    latest_checkpoint_epoch: 0 before the first; source_checkpoints and latest_checkpoint_id belong to it.
    changed: whether this registration found another definition and replaced it."""

    name: str
    job_id: str
    kind: JobKind
    created_ms: int
    definition: Mapping[str, Any]
    comment: str = ""
    checkpoint_interval_ms: int = INTERVAL_DEFAULT_MS
    latest_checkpoint_epoch: int = 0
    latest_checkpoint_id: int | None = None
    source_checkpoints: Offsets = field(default_factory=dict)
    incarnation: int = 0
    line: int = FIRST_LINE
    changed: bool = False


def whole(what: str, value: object, least: int) -> int:
    """A whole number that the database can hold; ValueError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _WHOLE_MAX:
        raise ValueError(f"{what} must be a whole number of at least {least} that fits 64 bits, not {value!r:.40}")
    return value
