"""Work ahead: a helper thread begins what a reader will need, so that gathering and searching use two cores.

What nobody has begun by the time that it is needed is done by the one who needs it: a helper that is busy, or does not
exist, delays nobody. There is one helper in a process, and none where there is one core. Threading: any thread may
use it; a job must not change anything, and may run even though its result is not asked for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from iopool import PoolBusy, Ticket
from iopool.lane import JobLane

T = TypeVar("T")
_DEPTH = 256  # jobs that wait; beyond that, they are left to those who need them
_HELPERS = min(1, len(os.sched_getaffinity(0)) - 1)
_lane = JobLane("ahead", 1, _DEPTH)


class Ahead(Generic[T]):
    """A job that may be done before it is needed."""

    __slots__ = ("_begun", "_job", "_ticket")

    def __init__(self, job: Callable[[], T]) -> None:
        self._job: Callable[[], T] | None = job
        self._begun = threading.Lock()  # whoever gets it does the job
        self._ticket: Ticket[tuple[T] | None] | None = None
        if _HELPERS:
            with suppress(PoolBusy, RuntimeError):  # too much to do, or no thread to be had
                self._ticket = _lane.submit(self._help, 0.0)

    def result(self) -> T:
        """What the job gives; raises what it raises. Ask once: it is not kept."""
        job, self._job = self._job, None
        ticket, self._ticket = self._ticket, None
        assert job is not None
        if ticket is None or self._begun.acquire(blocking=False):
            return job()
        done = ticket.result()
        assert done is not None
        return done[0]

    def _help(self) -> tuple[T] | None:
        job = self._job
        return (job(),) if job is not None and self._begun.acquire(blocking=False) else None
