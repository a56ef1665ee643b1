"""The ticket of a job: what its caller waits for, and where its worker leaves the outcome.

Threading: any thread may wait; only the lane runs and ends a ticket. Invariants: a ticket ends once, and an
ended one never changes. The outcome is there before the lock opens, and waiters look at the outcome, not at
the lock, at least every `LOOK_AGAIN_SECONDS`: an interrupt between taking and returning it harms nobody.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar, cast

T = TypeVar("T")

LOOK_AGAIN_SECONDS = 0.1


def deadline_after(timeout: float | None) -> float:
    """The moment on the monotonic clock that is `timeout` seconds away; None never comes."""
    return math.inf if timeout is None else monotonic() + timeout


class Ticket(Generic[T]):
    """The outcome of one job, now or later."""

    __slots__ = ("_attend", "_done", "_ended", "_error", "_job", "_value")

    def __init__(self, job: Callable[[], T], attend: Callable[[], None]) -> None:
        self._job: Callable[[], T] | None = job
        self._attend = attend  # raises if waiting is in vain
        self._value: T | None = None
        self._error: BaseException | None = None
        self._done = False
        self._ended = threading.Lock()  # held until the job has ended
        self._ended.acquire()

    def done(self) -> bool:
        """Whether `result` would answer at once."""
        return self._done

    def result(self, timeout: float | None = None) -> T:
        """What the job returned; raises what it raised. After an interrupt or a TimeoutError the job goes on.

        Raises JobLost if the outcome will never be known, PoolClosed if the pool was closed before the job
        began, and RuntimeError in a job of the same lane, which could be waiting for itself.
        """
        deadline = deadline_after(timeout)
        while not self._done:
            self._attend()
            left = deadline - monotonic()
            if left <= 0:
                raise TimeoutError(f"the job has not ended within {timeout} s; it goes on")
            if self._ended.acquire(timeout=min(left, LOOK_AGAIN_SECONDS)):
                self._ended.release()
        try:
            if self._error is not None:
                raise self._error
            return cast("T", self._value)
        finally:
            del self  # the error's traceback holds this frame: no cycle through the ticket

    def run(self) -> BaseException | None:
        """For the lane: runs the job and keeps what it returned, unannounced. Gives what it raised."""
        try:
            if self._job is not None:
                self._value = self._job()
            return None
        except BaseException as error:
            return error
        finally:
            del self  # as in `result`

    def end(self, error: BaseException | None) -> None:
        """For the lane: announces the outcome. A second call changes nothing."""
        if not self._done:
            self._error = error
            self._job = None
            self._done = True
            self._ended.release()
