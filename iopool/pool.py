"""The engine's worker pool: two lanes with threads of their own, so that compaction never delays a spill.

Owns both lanes and the rules for closing them; `lane.py` owns the threads. Threading: any number of threads
may use a pool. Invariants: a pool starts no thread before its first job; a forked child finds it empty and
unstarted; a pool that is garbage collected finishes its queued jobs and leaves no thread behind.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Literal, TypeVar

from iopool.lane import JobLane, LaneMetrics
from iopool.ticket import Ticket

T = TypeVar("T")
Lane = Literal["spill", "compaction"]


class WorkerPool:
    """Runs jobs in the background, each in its lane; a lane with one worker runs them in order."""

    def __init__(self, *, spill_workers: int = 1, compaction_workers: int = 1, queue_depth: int = 64) -> None:
        self._lanes: dict[Lane, JobLane] = {
            "spill": JobLane("spill", spill_workers, queue_depth),
            "compaction": JobLane("compaction", compaction_workers, queue_depth),
        }
        # Threads and tickets know their lane, never the pool: it can be collected, and then its threads end.
        weakref.finalize(self, _stop, tuple(self._lanes.values())).atexit = False

    def submit(self, lane: Lane, job: Callable[[], T], *, timeout: float | None = None) -> Ticket[T]:
        """Queues a job; blocks while the lane's queue is full.

        Raises PoolBusy after `timeout` seconds, PoolClosed after `close`, RuntimeError if the system gives no
        thread, or in a job that would wait for room in its own lane. After a KeyboardInterrupt the job may or
        may not have been queued.
        """
        if lane not in self._lanes:
            raise ValueError(f"no lane {lane!r}: there are {', '.join(self._lanes)}")
        return self._lanes[lane].submit(job, timeout)

    def close(self, timeout: float = 30.0) -> bool:
        """Takes no more jobs and waits at most `timeout` seconds for those it has; True if all ended.

        Jobs that did not begin by then never run: their tickets raise PoolClosed. A job that still runs
        cannot be stopped; its thread ends after it. May be called again, also after an interrupt.
        Requires: the caller is not a job of this pool.
        """
        deadline = monotonic() + timeout
        lanes = tuple(self._lanes.values())
        for lane in lanes:
            lane.refuse_own_worker()
        _stop(lanes)
        ended = [lane.join(deadline) for lane in lanes]
        return all(ended)

    def metrics(self) -> dict[Lane, LaneMetrics]:
        """The state of each lane now."""
        return {name: lane.metrics() for name, lane in self._lanes.items()}


def _stop(lanes: Iterable[JobLane]) -> None:
    for lane in lanes:
        lane.stop()
