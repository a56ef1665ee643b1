"""One attempt at a checkpoint: who has to answer, who has, at which step it is and since when.

Belongs to the coordinator. An error changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from lsmstate.checkpoint.coordinator.phases import STEPS, InProgress, OperatorSnapshot, PhaseTimeouts, Step
from lsmstate.errors import CheckpointError


class Attempt:
    """expected: who was registered when it began; all of them are waited for, nobody else."""

    def __init__(
        self, checkpoint_id: int, epoch: int, expected: Collection[str], started_ms: int, now: float, then_stop: bool
    ) -> None:
        self.id, self.epoch, self.then_stop = checkpoint_id, epoch, then_stop
        self.expected = frozenset(expected)
        self.snapshots: dict[str, OperatorSnapshot] = {}
        self.step: Step = "align"
        self._started_ms, self._since = started_ms, now
        self._aligned: set[str] = set()

    @property
    def phase(self) -> InProgress:
        """As others see it."""
        return InProgress(
            self.id, self.epoch, self.step, self._started_ms, frozenset(self.snapshots), then_stop=self.then_stop
        )

    @property
    def pending(self) -> tuple[str, ...]:
        """Whose report is still missing, sorted."""
        return tuple(sorted(self.expected.difference(self.snapshots)))

    @property
    def is_synced(self) -> bool:
        """Whether all reports have come."""
        return self.expected <= self.snapshots.keys()

    def check_report(self, operator: str, checkpoint_id: int) -> None:
        """Raises CheckpointError where a report is not of this attempt."""
        if checkpoint_id != self.id:
            raise CheckpointError(
                f"operator {operator!r} reports on checkpoint {checkpoint_id}, but {self.id} is in progress: "
                "the report is late, or comes from another job"
            )
        if operator not in self.expected:
            raise CheckpointError(
                f"operator {operator!r} was not registered when checkpoint {self.id} began: its report does not count"
            )

    def align(self, operator: str, now: float) -> None:
        """An operator has got the barrier on all inputs. When all have, the snapshots' time begins."""
        self._aligned.add(operator)
        if self.step == "align" and self.expected <= self._aligned:
            self.step, self._since = "snapshot", now

    def acknowledge(self, snapshot: OperatorSnapshot, now: float) -> bool:
        """Takes a report. False if it is a repeated one."""
        if snapshot.operator in self.snapshots:
            return False
        if snapshot.size_bytes < 0:
            raise ValueError(f"operator {snapshot.operator!r} reports a size of {snapshot.size_bytes} bytes")
        self.snapshots[snapshot.operator] = snapshot
        self.align(snapshot.operator, now)
        return True

    def check_synced(self, wish: str) -> None:
        """Raises CheckpointError while reports are missing."""
        if not self.is_synced:
            names = ", ".join(map(repr, self.pending))
            raise CheckpointError(f"cannot {wish} checkpoint {self.id}: no report yet of {names}")

    def begin(self, step: Step, now: float) -> None:
        """Goes on to a later step."""
        self.check_synced(f"begin {step!r} of")
        if step not in ("pre_commit", "persist", "commit") or STEPS.index(step) <= STEPS.index(self.step):
            raise CheckpointError(f"checkpoint {self.id} is at {self.step!r}: {step!r} does not follow it")
        self.step, self._since = step, now

    def overdue(self, timeouts: PhaseTimeouts, now: float) -> str | None:
        """In words that its step has taken too long, None if it has not."""
        limit_s = timeouts.of(self.step)
        if now - self._since < limit_s:
            return None
        names = ", ".join(map(repr, self.pending))
        return f"{self.step} took longer than {limit_s:g} s" + (f"; no report of {names}" if names else "")
