"""The coordinator of a job's checkpoints, after Chandy and Lamport: sends barriers, collects reports, decides.

It does nothing by itself: no threads, no I/O, no waiting; the clock is handed in. A runtime calls it from one thread:

    tick() -> should_checkpoint() -> initiate() -> barrier to all sources
    reports -> progress(), acknowledge(), decline() -> after the last one: is_synced
    begin("pre_commit") -> sinks;  begin("persist") -> manifest, then catalog;  begin("commit") -> everybody;  done()

Invariants: one checkpoint at a time. An id is used once; the epoch is the last committed one plus 1. Only operators
that were registered when it began are waited for, each counts once, and no later step begins before all have answered.
Every step ends by the clock. An error changes nothing. `phases` tells which failures may be undone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.coordinator.attempt import Attempt
from lsmstate.checkpoint.coordinator.cadence import Cadence
from lsmstate.checkpoint.coordinator.events import STARTED, Event, EventKind, Teller
from lsmstate.checkpoint.coordinator.kept import Kept
from lsmstate.checkpoint.coordinator.phases import (
    Completed,
    Failed,
    Idle,
    OperatorSnapshot,
    Phase,
    PhaseTimeouts,
    Retained,
    Step,
)
from lsmstate.errors import CheckpointError

__all__ = ["CheckpointCoordinator", "OperatorSnapshot", "PhaseTimeouts"]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class CheckpointCoordinator:
    """next_id: gives ids that never repeat, the catalog's; counted from 1 unless told. epoch: the last committed one.
    retain: how many complete ones are kept; retained: those of earlier runs, oldest first. failures_max: in a row.
    on_event: told of all that happens; what it raises is logged and changes nothing."""

    def __init__(
        self,
        *,
        next_id: Callable[[], int] | None = None,
        epoch: int = 0,
        interval_s: float = 60.0,
        timeouts: PhaseTimeouts | None = None,
        retain: int = 10,
        retained: Iterable[Retained] = (),
        failures_max: int = 3,
        backoff_s: float = 1.0,
        skip_first_tick: bool = True,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = _wall_ms,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._kept = Kept(epoch, retain, retained)
        self._next_id = next_id if next_id is not None else itertools.count(1).__next__
        self._timeouts = timeouts if timeouts is not None else PhaseTimeouts()
        self._clock, self._now_ms, self._teller = clock, now_ms, Teller(on_event, now_ms)
        self._cadence = Cadence(
            clock,
            interval_s=interval_s,
            backoff_s=backoff_s,
            failures_max=failures_max,
            skip_first_tick=skip_first_tick,
        )
        self._operators: dict[str, None] = {}  # in the order of registration
        self._attempt: Attempt | None = None
        self._outcome: Idle | Completed | Failed = Idle()
        self._last_id = 0
        self._wants_stop = self._has_stopped = False

    def register(self, operator: str) -> None:
        """Makes an operator part of the checkpoints that begin from now on. Again: changes nothing."""
        self._operators[operator] = None

    def unregister(self, operator: str) -> Failed | None:
        """Takes an operator out. A checkpoint that still waits for its report fails: its state would be missing."""
        self._operators.pop(operator, None)
        return self._fail(f"operator {operator!r} left before its report") if operator in self.pending else None

    def should_checkpoint(self) -> bool:
        """Whether to initiate now: nothing is under way and the interval, or the back-off after a failure, is over.

        Raises TooManyFailures after `failures_max` in a row, CheckpointError where the job must be recovered first.
        """
        if self._attempt is not None or self._has_stopped:
            return False
        self._cadence.check()
        return self._cadence.is_due()

    def initiate(self, *, then_stop: bool = False) -> CheckpointBarrier:
        """Begins a checkpoint and gives the barrier for the sources. then_stop also holds for the attempts that follow
        if this one fails. What `next_id` raises is passed on, and counts as a failure."""
        if self._attempt is not None:
            raise CheckpointError(
                f"checkpoint {self._attempt.id} is in progress ({self._attempt.step}): one at a time, wait for its end"
            )
        if self._has_stopped:
            raise CheckpointError(f"the job stops with epoch {self.epoch}: no checkpoint follows")
        self._cadence.check()
        try:
            number = self._next_id()
        except Exception as error:
            self._cadence.failed(f"no id for it: {error}")
            raise
        if number <= self._last_id:
            raise CheckpointError(
                f"checkpoint id {number} comes after {self._last_id}: ids must rise, and never repeat"
            )
        self._last_id, epoch, now_ms = number, self.epoch + 1, self._now_ms()
        self._wants_stop = self._wants_stop or then_stop
        self._attempt = Attempt(number, epoch, self._operators, now_ms, self._clock(), self._wants_stop)
        self._cadence.started()
        self._tell("initiated", self._attempt)
        if self._attempt.is_synced:  # nobody is registered
            self._tell("sync_finished", self._attempt)
        return CheckpointBarrier(epoch, self.min_epoch, now_ms, self._wants_stop, checkpoint_id=number)

    def progress(self, kind: EventKind, operator: str, checkpoint_id: int, at_ms: int | None = None) -> None:
        """An operator tells that its alignment, or its snapshot, has started; at_ms: when, where that is known."""
        if kind not in ("alignment_started", "checkpointing_started"):
            raise ValueError(f"operators tell that alignment or checkpointing has started, not {kind!r}")
        attempt = self._reported(operator, checkpoint_id)
        if kind == "checkpointing_started":
            attempt.align(operator, self._clock())
        self._teller.tell(kind, attempt.id, attempt.epoch, operator, at_ms=at_ms)

    def acknowledge(self, snapshot: OperatorSnapshot) -> bool:
        """An operator has made all that it had before the barrier durable. True if it was the last expected one.

        A repeated report changes nothing. Raises CheckpointError where none is expected: nothing is under way, or
        another id; the operator is not registered, or was not when the checkpoint began.
        """
        attempt = self._reported(snapshot.operator, snapshot.checkpoint_id)
        if not attempt.acknowledge(snapshot, self._clock()):
            return False
        self._tell("operator_finished", attempt, snapshot.operator)
        if not attempt.is_synced:
            return False
        self._tell("sync_finished", attempt)
        return True

    def decline(self, operator: str, checkpoint_id: int, reason: str) -> Failed:
        """An operator cannot take part: the checkpoint fails at once."""
        self._reported(operator, checkpoint_id)
        return self._fail(f"operator {operator!r} declined: {reason}")

    def abort(self, reason: str) -> Failed:
        """Ends the checkpoint that is under way. Raises CheckpointError where none is."""
        self._running("abort")
        return self._fail(reason)

    def begin(self, step: Step) -> None:
        """Goes on to a later step; some may be left out. Raises CheckpointError before all operators have answered.

        Requires: "commit" only once the catalog has the checkpoint: from then on its epoch counts.
        """
        attempt = self._running(f"begin {step!r} of")
        attempt.begin(step, self._clock())
        if step == "commit":
            self._kept.epoch = attempt.epoch
        self._tell(STARTED[step], attempt)

    def done(self, *, size_bytes: int | None = None) -> Completed:
        """Everybody has committed: the checkpoint is complete. size_bytes: the sum of the reports unless told."""
        attempt = self._running("complete")
        attempt.check_synced("complete")
        completed = self._kept.add(attempt, self._now_ms(), size_bytes)
        self._has_stopped = attempt.then_stop
        self._attempt, self._outcome = None, completed
        self._cadence.succeeded()
        self._tell("commit_finished", attempt)
        return completed

    def tick(self) -> Failed | None:
        """Looks at the clock: gives the failure where the present step has taken too long. What had ended becomes
        Idle."""
        if self._attempt is None:
            self._outcome = Idle()
            return None
        why = self._attempt.overdue(self._timeouts, self._clock())
        return self._fail(why) if why is not None else None

    @property
    def operators(self) -> tuple[str, ...]:
        """Who is registered, in the order of registration."""
        return tuple(self._operators)

    @property
    def phase(self) -> Phase:
        """Where it stands. Completed and Failed last until the next tick, or the next checkpoint."""
        return self._outcome if self._attempt is None else self._attempt.phase

    @property
    def current_id(self) -> int | None:
        """The id of the checkpoint that is under way."""
        return None if self._attempt is None else self._attempt.id

    @property
    def pending(self) -> tuple[str, ...]:
        """Whose report is still missing, sorted; nobody's if nothing is under way."""
        return () if self._attempt is None else self._attempt.pending

    @property
    def is_synced(self) -> bool:
        """Whether all reports on the checkpoint under way have come; at once where nobody is registered."""
        return self._attempt is not None and self._attempt.is_synced

    @property
    def snapshots(self) -> Mapping[str, OperatorSnapshot]:
        """The reports on the checkpoint that is under way, by operator."""
        return {} if self._attempt is None else dict(self._attempt.snapshots)

    @property
    def epoch(self) -> int:
        """The last committed one."""
        return self._kept.epoch

    @property
    def latest(self) -> Retained | None:
        """The newest complete checkpoint."""
        return self._kept.latest

    @property
    def retained(self) -> tuple[Retained, ...]:
        """The complete checkpoints that are kept, oldest first."""
        return self._kept.all

    def by_id(self, checkpoint_id: int) -> Retained | None:
        """A complete checkpoint that is kept."""
        return next((each for each in self._kept.all if each.id == checkpoint_id), None)

    @property
    def positions(self) -> Mapping[str, Mapping[str, str]]:
        """Where the sources were at the latest complete checkpoint: source -> offsets."""
        return self._kept.positions

    @property
    def min_epoch(self) -> int:
        """Epochs below it may be collected: as many as are to be kept are complete from it on."""
        return self._kept.min_epoch

    @property
    def consecutive_failures(self) -> int:
        """How many attempts have failed since the last complete one."""
        return self._cadence.failures

    @property
    def has_stopped(self) -> bool:
        """Whether a checkpoint with then_stop is complete: the job ends."""
        return self._has_stopped

    def _running(self, wish: str) -> Attempt:
        if self._attempt is None:
            raise CheckpointError(f"cannot {wish} a checkpoint: none is in progress")
        return self._attempt

    def _reported(self, operator: str, checkpoint_id: int) -> Attempt:
        if self._attempt is None:
            raise CheckpointError(
                f"operator {operator!r} reports on checkpoint {checkpoint_id}, but none is in progress: it is late"
            )
        if operator not in self._operators:
            raise CheckpointError(f"operator {operator!r} is not registered: its report does not count")
        self._attempt.check_report(operator, checkpoint_id)
        return self._attempt

    def _fail(self, reason: str) -> Failed:
        attempt = self._running("fail")
        failed = Failed(attempt.id, attempt.epoch, reason, attempt.step, self._now_ms())
        self._attempt, self._outcome = None, failed
        self._cadence.failed(reason, failed if failed.must_recover else None)
        self._tell("failed", attempt, detail=reason)
        return failed

    def _tell(self, kind: EventKind, attempt: Attempt, operator: str | None = None, *, detail: str = "") -> None:
        self._teller.tell(kind, attempt.id, attempt.epoch, operator, detail=detail)
