"""One lane of the worker pool: a bounded queue of jobs and the threads that run them.

Threading: everything may be called from any thread, from a signal handler, and in a forked child.
Invariants:
- A job runs at most once, and its ticket ends: with the outcome, with `PoolClosed` or with `JobLost`.
- `_workers` lists exactly the threads that may take jobs. A thread that does not find itself there ends at
  once, so an interrupted start leaves nothing behind.
- `_wake` holds at least one token for each queued job; a token too many is harmless.
- The interpreter does not end while a job runs, unless one takes longer than `_EXIT_SECONDS`: a thread that comes back
  to it from compiled code, out of a destructor in C++, would abort the process.
- Waiting uses only primitives written in C (RLock, Lock, SimpleQueue): a KeyboardInterrupt in the middle of a
  Condition or an Event can leave it broken for everyone. All that an interrupt can lose here is a hint in
  `_news`, and every wait looks again after `LOOK_AGAIN_SECONDS`.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from iopool.errors import JobLost, PoolBusy, PoolClosed
from iopool.ticket import LOOK_AGAIN_SECONDS, Ticket, deadline_after

T = TypeVar("T")

_ERROR_TEXT_MAX = 500
_EXIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LaneMetrics:
    """A lane at one moment. Seconds are those of ended jobs, on the monotonic clock."""

    queued: int = 0
    running: int = 0
    finished: int = 0  # returned
    failed: int = 0  # raised
    busy_seconds: float = 0.0
    longest_seconds: float = 0.0
    last_error: str | None = None


class JobLane:
    """A bounded queue and its workers, which start with the first job. See the module for the rules."""

    def __init__(self, name: str, workers: int, depth: int) -> None:
        if workers < 1 or depth < 1:
            raise ValueError(f"the {name} lane needs at least one worker and room for one job")
        self.name = name
        self._size = workers
        self._depth = depth
        self._closing = False
        self._generation = 0  # forks between this process and the one that made the lane
        self._clear()
        _LANES.add(self)

    def _clear(self) -> None:
        """Empty, without threads, every primitive new: a thread that a fork left behind may hold the old."""
        self._lock = threading.RLock()  # a signal handler may close the pool in the middle of a submit
        self._jobs: deque[Ticket[Any]] = deque()
        self._workers: list[_Worker] = []
        self._wake: SimpleQueue[None] = SimpleQueue()  # for workers
        self._news: SimpleQueue[None] = SimpleQueue()  # for those who wait for room, or for the end
        self._ended = LaneMetrics()

    def submit(self, job: Callable[[], T], timeout: float | None) -> Ticket[T]:
        """Queues the job, waiting while the queue is full. See `WorkerPool.submit`."""
        deadline = deadline_after(timeout)
        while (ticket := self._accept(job)) is None:
            self.refuse_own_worker()
            left = deadline - monotonic()
            if left <= 0:
                waited = f"{self._depth} {self.name} jobs were queued for {timeout} s"
                raise PoolBusy(f"{waited}: wait longer, or submit less")
            self._await_news(left)
        return ticket

    def stop(self) -> None:
        """Takes no more jobs; workers end after the last queued one. No lock: garbage collection calls it."""
        self._closing = True
        self._wake.put(None)
        self._news.put(None)

    def join(self, deadline: float) -> bool:
        """Waits for the end of all jobs and threads, then drops what did not begin. Requires: `stop`."""
        threads = set(self._workers)
        while self._workers or self._jobs:
            left = deadline - monotonic()
            if left <= 0:
                self._drop()
                return False
            with suppress(RuntimeError), self._lock:  # without any thread the jobs are dropped in the end
                self._staff()
            threads.update(self._workers)
            self._await_news(left)
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def settle(self, deadline: float) -> None:
        """Waits until no job runs or is queued, or for the deadline."""
        while self._jobs or any(worker.current is not None for worker in self._workers):
            left = deadline - monotonic()
            if left <= 0:
                return
            self._await_news(left)

    def refuse_own_worker(self) -> None:
        """Raises RuntimeError in a job of this lane: to wait here could be to wait for itself."""
        if threading.current_thread() in self._workers:
            raise RuntimeError(f"a {self.name} job must not wait for its own lane")

    def metrics(self) -> LaneMetrics:
        """The counters, consistent with each other; in a forked child they start again."""
        with self._lock:
            running = sum(w.current is not None and not w.current.done() for w in self._workers)
            return replace(self._ended, queued=len(self._jobs), running=running)

    def work(self, worker: _Worker) -> None:
        """The life of a worker: takes jobs until the lane is closing and empty, or is a forked child's."""
        with self._lock:
            generation = self._generation
            if worker not in self._workers:
                return
        self._wake.put(None)  # a predecessor may have died with the token of a job that still waits
        try:
            while generation == self._generation:
                self._wake.get()
                if self._take(worker):
                    self._run_current(worker)
                elif self._closing:
                    break
        finally:
            if worker.current is not None:
                lost = f"a worker thread died; whether its {self.name} job took effect is unknown"
                worker.current.end(JobLost(lost))
            with self._lock:
                self._workers = [other for other in self._workers if other is not worker]
            self._wake.put(None)  # so that the next worker of a closing lane ends too
            self._tell_news()

    def forked(self) -> None:
        """In a forked child: starts again without threads; the jobs of before belong to the parent."""
        self._generation += 1
        self._clear()

    def _accept(self, job: Callable[[], T]) -> Ticket[T] | None:
        with self._lock:
            if self._closing:
                raise PoolClosed(f"the pool is closed and takes no {self.name} jobs: open a new one")
            self._staff()
            if len(self._jobs) >= self._depth:
                return None
            ticket = Ticket(job, partial(self._attend, self._generation))
            self._wake.put(None)  # before the job: an interrupt in between leaves a token too many
            self._jobs.append(ticket)
            return ticket

    def _attend(self, generation: int) -> None:
        """What a waiter does for its job: sees that it can still end, and that a worker lives."""
        if generation != self._generation:
            lost = f"this {self.name} job was submitted before a fork: it belongs to the parent process"
            raise JobLost(f"{lost}; submit it again here if it may run twice")
        self.refuse_own_worker()
        with self._lock:
            self._staff()

    def _staff(self) -> None:
        """Starts the workers that are missing. Requires: the lock is held."""
        if self._closing and not self._jobs:
            return
        while len(self._workers) < self._size:
            worker = _Worker(self)
            worker.start_out_of_reach()
            if len(self._workers) < self._size:  # a signal handler may have submitted meanwhile
                self._workers.append(worker)  # only now: interrupted before, it is not listed and ends

    def _drop(self) -> None:
        with self._lock:
            for ticket in self._jobs:
                ticket.end(PoolClosed(f"the pool was closed before this {self.name} job began; it never ran"))
            self._jobs.clear()

    def _take(self, worker: _Worker) -> bool:
        with self._lock:
            if not self._jobs:
                return False
            worker.current = self._jobs[0]  # first owned, then removed: it is never lost in between
            self._jobs.popleft()
        self._tell_news()
        return True

    def _run_current(self, worker: _Worker) -> None:
        ticket = worker.current
        if ticket is None or ticket.done():  # dropped by a close that was interrupted
            worker.current = None
            return
        started = monotonic()
        error = ticket.run()
        self._count(monotonic() - started, error)
        ticket.end(error)  # counted before: who has the result finds it in the metrics
        worker.current = None
        del ticket, error  # the error's traceback holds this frame: no cycle through either

    def _count(self, seconds: float, error: BaseException | None) -> None:
        with self._lock:
            before = self._ended
            self._ended = LaneMetrics(
                finished=before.finished + (error is None),
                failed=before.failed + (error is not None),
                busy_seconds=before.busy_seconds + seconds,
                longest_seconds=max(before.longest_seconds, seconds),
                last_error=before.last_error if error is None else _text(error),
            )

    def _await_news(self, left: float) -> None:
        with suppress(Empty):
            self._news.get(timeout=min(left, LOOK_AGAIN_SECONDS))

    def _tell_news(self) -> None:
        if self._news.empty():
            self._news.put(None)


class _Worker(threading.Thread):
    def __init__(self, lane: JobLane) -> None:
        super().__init__(name=f"iopool-{lane.name}", daemon=True)
        self._lane = lane
        self.current: Ticket[Any] | None = None

    def start_out_of_reach(self) -> None:
        """Starts the thread from a helper thread, which signals never interrupt.

        A KeyboardInterrupt inside Thread.start can leave a thread that waits forever for a lock nobody has.
        """
        answer: SimpleQueue[BaseException | None] = SimpleQueue()

        def start() -> None:
            try:
                self.start()
            except BaseException as error:
                answer.put(error)
            else:
                answer.put(None)

        _thread.start_new_thread(start, ())
        if (error := answer.get()) is not None:
            raise error

    def run(self) -> None:
        self._lane.work(self)


def _text(error: BaseException) -> str:
    """A line about an error, whatever its `__str__` does."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:_ERROR_TEXT_MAX]
    except BaseException:
        return name


def members(known: weakref.WeakSet[T]) -> list[T]:
    """What is in a set, though other threads may add to it meanwhile."""
    while True:
        with suppress(RuntimeError):  # it grew while it was read
            return list(known)


def _after_fork() -> None:
    for lane in members(_LANES):
        lane.forked()


def _at_exit() -> None:
    deadline = monotonic() + _EXIT_SECONDS
    for lane in members(_LANES):
        lane.settle(deadline)


_LANES: weakref.WeakSet[JobLane] = weakref.WeakSet()  # fork handlers cannot be taken back: one for all lanes
os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)  # whoever can shorten its jobs, as compaction can, does so in a handler registered after this
