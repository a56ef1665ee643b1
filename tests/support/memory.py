"""Writers that wait for memory, in threads of their own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from time import monotonic

from iopool import MemoryAccount, MemoryController

PATIENCE = 30.0  # seconds before a test gives up; nothing here should come near
SOON = 0.001  # a timeout that is meant to pass


class Writer(threading.Thread):
    """A thread that reserves once; `ended` gives what came of it."""

    def __init__(self, account: MemoryAccount, size_bytes: int) -> None:
        super().__init__(daemon=True)
        self._account, self._size_bytes = account, size_bytes
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._account.reserve(self._size_bytes, 10 * PATIENCE)  # the test gives up first
        except BaseException as error:
            self._error = error

    def ended(self) -> BaseException | None:
        self.join(PATIENCE)
        assert not self.is_alive()
        return self._error


def until(true: Callable[[], bool]) -> None:
    """Looks until it is true, and fails if that takes too long."""
    deadline = monotonic() + PATIENCE
    while not true():
        assert monotonic() < deadline
        os.sched_yield()


def waiting_writer(memory: MemoryController, account: MemoryAccount, size_bytes: int) -> Writer:
    """A writer that is in the queue, behind all that were there, and has looked in vain."""
    before = memory.usage().waiting
    writer = Writer(account, size_bytes)
    until(lambda: memory.usage().waiting == before + 1)
    until(lambda: sys._current_frames()[writer.ident or 0].f_code is MemoryController._wait.__code__)
    return writer
