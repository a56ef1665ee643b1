"""Whether there may be another checkpoint, and when: by interval, and after failures by a back-off that doubles.

The first tick is skipped: a job that starts has nothing to save yet. Failures are retried sooner than the interval
where it is long, and later where it is short. After a failure that may yet count there is none before a recovery.
Monotonic clock only. Belongs to the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable

from lsmstate.checkpoint.coordinator.phases import Failed
from lsmstate.errors import CheckpointError, TooManyFailures

BACKOFF_MAX_S = 60.0


class Cadence:
    """interval_s: from start to start. backoff_s: after the first failure in a row; twice as long after each more.
    failures_max: in a row, then it is over."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        interval_s: float,
        backoff_s: float,
        failures_max: int,
        skip_first_tick: bool = True,
    ) -> None:
        if not interval_s > 0:
            raise ValueError(f"the interval of checkpoints must be above 0 seconds, not {interval_s!r}")
        if not backoff_s >= 0:
            raise ValueError(f"the back-off after a failed checkpoint must be 0 seconds or more, not {backoff_s!r}")
        if failures_max < 1:
            raise ValueError(f"failures_max must be at least 1, not {failures_max!r}")
        self._clock = clock
        self._interval_s, self._backoff_s = interval_s, backoff_s
        self._due = clock() + (interval_s if skip_first_tick else 0.0)
        self._after_success = self._due
        self._failures_max, self.failures, self._why = failures_max, 0, ""
        self._lost: Failed | None = None  # a failure that only a recovery can settle

    def check(self) -> None:
        """Raises TooManyFailures once as many in a row have failed as may, CheckpointError where the job must be
        recovered first."""
        if self._lost is not None:
            raise CheckpointError(
                f"checkpoint {self._lost.id} failed at {self._lost.step!r} ({self._lost.reason}): whether epoch "
                f"{self._lost.epoch} counts is for the catalog to tell; recover the job from there"
            )
        if self.failures >= self._failures_max:
            raise TooManyFailures(
                f"{self.failures} checkpoints in a row have failed, the last one because: {self._why}; "
                "mend the cause, and start the job again from its last committed epoch"
            )

    def is_due(self) -> bool:
        """Whether the next one may start."""
        return self._clock() >= self._due

    def started(self) -> None:
        """One has started: the next is due an interval from now."""
        self._after_success = self._due = self._clock() + self._interval_s

    def succeeded(self) -> None:
        """It is complete: failures are forgotten."""
        self.failures = 0
        self._due = self._after_success

    def failed(self, why: str, lost: Failed | None = None) -> None:
        """It failed, or could not even start. lost: the failure, where only a recovery can settle it."""
        self.failures, self._why = self.failures + 1, why
        self._lost = self._lost or lost
        wait = min(self._backoff_s * 2.0 ** min(self.failures - 1, 32), max(BACKOFF_MAX_S, self._backoff_s))
        self._due = self._clock() + wait
