"""The phases of a checkpoint, what operators report of it, and what is kept of those that are complete.

    Idle -> InProgress -> Completed | Failed -> Idle

Steps while it is in progress, each with a timeout: align, snapshot, pre_commit, persist, commit. Before persist a
failure undoes the attempt and nothing else. From persist on its manifest may be durable, or become so late, whatever
the writer was told: such an attempt may not be undone, only recovered (`Failed.must_recover`). From commit on the
catalog has it.

All values here are immutable: safe to hand to any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lsmstate.checkpoint.manifest.operator_state import OperatorState

Step = Literal["align", "snapshot", "pre_commit", "persist", "commit"]

STEPS: tuple[Step, ...] = ("align", "snapshot", "pre_commit", "persist", "commit")
UNDECIDED: tuple[Step, ...] = ("persist", "commit")  # steps whose failure only a recovery can settle


@dataclass(frozen=True, slots=True)
class PhaseTimeouts:
    """How long each step may take, in seconds of the monotonic clock."""

    align_s: float = 60.0
    snapshot_s: float = 300.0
    pre_commit_s: float = 60.0
    persist_s: float = 60.0
    commit_s: float = 60.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if not getattr(self, each.name) > 0:
                raise ValueError(f"PhaseTimeouts.{each.name} must be above 0, not {getattr(self, each.name)!r}")

    def of(self, step: Step) -> float:
        """Of one step."""
        seconds: float = getattr(self, f"{step}_s")
        return seconds


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing is under way."""


@dataclass(frozen=True, slots=True)
class InProgress:
    """started_ms: when it was initiated, by the wall clock. acked: who has answered. then_stop: the job stops once it
    is committed."""

    id: int
    epoch: int
    step: Step
    started_ms: int
    acked: frozenset[str] = frozenset()
    then_stop: bool = False


@dataclass(frozen=True, slots=True)
class Completed:
    """It is durable, in the catalog, and committed by everybody. size_bytes: of all snapshots together."""

    id: int
    epoch: int
    at_ms: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """step: where it failed. must_recover: nobody may be told to abort, because the attempt may yet count; the job is
    taken again from the catalog, which decides. Otherwise everybody is told to abort, and the epoch is tried again."""

    id: int
    epoch: int
    reason: str
    step: Step
    at_ms: int

    @property
    def must_recover(self) -> bool:
        """Whether only a recovery can tell if it counts."""
        return self.step in UNDECIDED


Phase = Idle | InProgress | Completed | Failed


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """What an operator reports once all that it had before the barrier is durable.

    state: where it lies, by name; nothing here looks into it. inflight: per input the records that an
    unaligned checkpoint took along. offsets: of a source, strictly after which it goes on. watermark: in microseconds.
    tables: offsets of the reference tables that it reads, by name. has_ended: of a source, that nothing follows.
    """

    operator: str
    checkpoint_id: int
    state: Mapping[str, OperatorState | bytes] | None = None
    inflight: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    size_bytes: int = 0
    offsets: Mapping[str, str] | None = None
    watermark: int | None = None
    wal_position: int | None = None
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class Retained:
    """What is kept of a complete checkpoint: where its sources were, not the state. positions: source -> offsets."""

    id: int
    epoch: int
    at_ms: int
    size_bytes: int
    positions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
