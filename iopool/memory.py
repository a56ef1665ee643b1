"""Memory shared by the stores of a process: who holds how much, who must spill, and who waits for room.

A store has one account. It reserves bytes before it keeps a batch and releases them when its spill has ended.
Above the soft limit stores are asked to spill, those that hold most first; at the hard limit writers wait, first
come first served. A batch larger than the hard limit passes once no other account holds anything and its own holds
no more than the soft limit: more than that has been asked to spill, and is on its way.

Threading: everything may be called from any thread and in a forked child; from a signal handler only `close`. A
spill must not reserve: it could wait for itself.
Invariants:
- What an account holds is one number, the total is their sum: nothing can get out of step. A closed account counts
  as nothing, so closing is one assignment, which garbage collection may do in the middle of anything.
- A waiter admits itself, and only when it is the first in `_queue` that still waits. Nobody gives room to one who has
  left, and one who left (its flag says so) is in nobody's way.
- The total never passes the hard limit, but for one oversize batch: then it is at most the soft limit and the batch.
- As in `lane`, waiting uses only primitives written in C, and all that an interrupt can lose is a hint in `news`:
  every wait looks again after `LOOK_AGAIN_SECONDS`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Literal

from iopool.errors import MemoryTimeout
from iopool.ticket import LOOK_AGAIN_SECONDS, deadline_after


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """A controller at one moment. Counters start again in a forked child; seconds are those of ended waits."""

    soft_bytes: int
    hard_bytes: int
    used_bytes: int = 0
    peak_bytes: int = 0
    waiting: int = 0  # writers that wait now
    waits: int = 0  # that ever had to
    waited_s: float = 0.0
    timeouts: int = 0
    pressure_errors: int = 0  # exceptions of `on_pressure` calls
    accounts: dict[str, int] = field(default_factory=dict)  # open ones; those of one name together


class MemoryController:
    """Two limits over the accounts of several stores. See the module for the rules."""

    def __init__(self, soft_bytes: int, hard_bytes: int, *, timeout: float = 30.0) -> None:
        """`timeout`: how long a `reserve` waits that names no time of its own. ValueError if a limit makes no sense."""
        _require_bytes("soft_bytes", soft_bytes, 1)
        _require_bytes("hard_bytes", hard_bytes, 1)
        if soft_bytes > hard_bytes:
            raise ValueError(f"soft_bytes ({soft_bytes}) must not be more than hard_bytes ({hard_bytes})")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
            raise ValueError(f"timeout must be seconds above 0, not {timeout!r}")
        self._soft, self._hard, self._timeout = soft_bytes, hard_bytes, timeout
        self._holdings: tuple[_Holding, ...] = ()  # swapped whole
        self._clear()
        _CONTROLLERS.add(self)

    def _clear(self) -> None:
        """Nothing held, nobody waiting, every primitive new: a thread that a fork left behind may hold the old."""
        self._lock = threading.RLock()  # a finalizer that releases may run in the middle of anything
        self._queue: tuple[_Waiter, ...] = ()  # swapped whole; those who left stay until the next look
        self._refunds: deque[tuple[_Holding, int]] = deque()
        self._past = MemoryUsage(self._soft, self._hard)  # the counters in it count, the rest does not
        for holding in self._holdings:
            holding.reserved_bytes = 0

    def account(self, name: str) -> MemoryAccount:
        """A new account, one for each store. Closed or garbage-collected, it gives back all that it holds."""
        account = MemoryAccount(self, name)
        with self._lock:
            self._holdings = (*(h for h in self._holdings if not h.closed), account._holding)
        return account

    def usage(self) -> MemoryUsage:
        """All figures, consistent with each other."""
        with self._lock:
            self._settle()
            names = dict.fromkeys(holding.name for holding in self._holdings if not holding.closed)
            accounts = {name: sum(h.size_bytes for h in self._holdings if h.name == name) for name in names}
            waiting = sum(waiter.waiting for waiter in self._queue)
            return replace(self._past, used_bytes=sum(accounts.values()), waiting=waiting, accounts=accounts)

    def _reserve(self, holding: _Holding, size_bytes: int, timeout: float) -> None:
        waiter = _Waiter(size_bytes)
        try:
            if not self._admit(holding, waiter):
                self._wait(holding, waiter, timeout)
        except BaseException:
            waiter.waiting = False  # no call before it, so not even a second interrupt leaves a ghost in the queue
            if waiter.admitted:  # interrupted on the way out: the caller will not know that it holds this
                self._refunds.append((holding, size_bytes))
            self._tell_first()
            raise

    def _wait(self, holding: _Holding, waiter: _Waiter, timeout: float) -> None:
        began, deadline = monotonic(), deadline_after(timeout)
        try:
            self._count("waits")
            self._press(holding)
            while not self._admit(holding, waiter):
                left = deadline - monotonic()
                if left <= 0:
                    raise self._timed_out(holding, waiter.size_bytes, timeout)
                try:
                    waiter.news.get(timeout=min(left, LOOK_AGAIN_SECONDS))
                except Empty:  # nothing moves. Others may hold all of it now; and one who waits can only spill its own
                    self._press(holding, alone=self._first() is not waiter)
        finally:
            self._count("waited_s", monotonic() - began)
        self._tell_first()  # there may be room for the next one too

    def _admit(self, holding: _Holding, waiter: _Waiter) -> bool:
        """Takes the room for the waiter if it is its turn and there is room, else sees that it is in the queue."""
        with self._lock:
            self._settle()
            if holding.closed:
                raise ValueError(f"the memory account {holding.name!r} is closed: open the store again")
            queue = tuple(other for other in self._queue if other.waiting)
            self._queue = queue if waiter in queue else (*queue, waiter)
            used = self._used()
            alone = waiter.size_bytes > self._hard and used == holding.size_bytes and used <= self._soft
            if self._first() is not waiter or not (alone or used + waiter.size_bytes <= self._hard):
                return False
            if used + waiter.size_bytes > self._past.peak_bytes:
                self._past = replace(self._past, peak_bytes=used + waiter.size_bytes)
            holding.reserved_bytes += waiter.size_bytes  # no call from here to the end: an interrupt sees all or none
            waiter.admitted = True
            waiter.waiting = False
            return True

    def _close(self, holding: _Holding) -> None:
        """No lock: garbage collection calls it."""
        holding.closed = True
        self._tell_first()

    def _press(self, asking: _Holding, *, alone: bool = False) -> None:
        """Wakes accounts that hold anything: the asking one first, and unless `alone` the others, the largest first."""
        with self._lock:
            holders = [h for h in self._holdings if h.size_bytes > 0 and (h is asking or not alone)]
        for holding in sorted(holders, key=lambda h: (h is not asking, -h.size_bytes)):
            try:
                if (account := holding.account()) is not None and (wake := account._wake) is not None:
                    wake()
            except Exception:  # that store's trouble; its own writers will hear of it. Interrupts pass
                self._count("pressure_errors")

    def _timed_out(self, holding: _Holding, size_bytes: int, timeout: float) -> MemoryTimeout:
        self._count("timeouts")
        asked = f"{holding.name!r} asked for {size_bytes} bytes of memory and found no room within {timeout} s"
        state = f"{self._used()} bytes are used ({holding.size_bytes} by itself), the hard limit is {self._hard}"
        advice = "make the batch smaller, raise the hard limit, or look at the disk that spills go to"
        return MemoryTimeout(f"{asked}: {state}; {advice}")

    def _count(self, counter: Literal["waits", "waited_s", "timeouts", "pressure_errors"], more: float = 1) -> None:
        with self._lock:
            changed: dict[str, Any] = {counter: getattr(self._past, counter) + more}
            self._past = replace(self._past, **changed)

    def _settle(self) -> None:
        """Takes back what interrupted reserves left. Requires: the lock is held."""
        while self._refunds:
            holding, size_bytes = self._refunds[0]
            holding.reserved_bytes -= size_bytes  # first taken back, then removed, no call in between
            self._refunds.popleft()

    def _used(self) -> int:
        return sum(holding.size_bytes for holding in self._holdings)

    def _first(self) -> _Waiter | None:
        return next((waiter for waiter in self._queue if waiter.waiting), None)

    def _tell_first(self) -> None:
        first = self._first()
        if first is not None and first.news.empty():
            first.news.put(None)


class MemoryAccount:
    """What one store holds of a controller's memory; made by `MemoryController.account`."""

    def __init__(self, controller: MemoryController, name: str) -> None:
        self._controller = controller
        self._wake: Callable[[], None] | None = None
        self._holding = _Holding(weakref.ref(self), name)
        weakref.finalize(self, controller._close, self._holding).atexit = False

    def __enter__(self) -> MemoryAccount:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def used_bytes(self) -> int:
        """What this account holds; 0 once it is closed, and in a forked child."""
        with self._controller._lock:
            self._controller._settle()
            return self._holding.size_bytes

    def reserve(self, size_bytes: int, timeout: float | None = None) -> None:
        """Takes the bytes, waiting up to `timeout` seconds (None: the controller's) while they pass the hard limit.

        Raises MemoryTimeout, and ValueError if the account is or gets closed; then, and after an interrupt, nothing
        was taken. Before it waits it calls `on_pressure` wakes, its own first, and again for as long as nothing moves.
        Requires: the caller holds nothing that the spills of its store need, and has heeded `should_spill`.
        """
        _require_bytes("size_bytes", size_bytes, 0)
        if timeout is None:
            timeout = self._controller._timeout
        elif isinstance(timeout, bool) or not timeout >= 0:
            raise ValueError(f"timeout must be seconds, 0 or more, not {timeout!r}")
        if size_bytes:
            self._controller._reserve(self._holding, size_bytes, timeout)

    def release(self, size_bytes: int) -> None:
        """Gives bytes back; ValueError if it holds less. It may come late, after `close`, and frees nothing then."""
        _require_bytes("size_bytes", size_bytes, 0)
        with self._controller._lock:
            self._controller._settle()
            if size_bytes > (held := self._holding.reserved_bytes):
                refused = f"{self._holding.name!r} holds {held} bytes of memory and cannot release {size_bytes}"
                raise ValueError(f"{refused}: each reserve is released once")
            self._holding.reserved_bytes -= size_bytes
        self._controller._tell_first()

    def should_spill(self) -> bool:
        """Whether this store is to seal and spill its memtable now.

        It is when all together are over the soft limit and it holds its fair share of that (an equal part for each
        account that holds anything) or more; and when a writer waits and it holds anything at all.
        """
        with self._controller._lock:
            mine = self.used_bytes
            if mine == 0 or self._controller._first() is not None:
                return mine > 0
            sizes = [holding.size_bytes for holding in self._controller._holdings if holding.size_bytes]
            return sum(sizes) > self._controller._soft and mine * len(sizes) >= self._controller._soft

    def on_pressure(self, wake: Callable[[], None] | None) -> None:
        """What a writer that has to wait calls if this account holds anything; None: nothing.

        It is called in that writer's thread, without locks, perhaps several times a second and by several at once. It
        should only start a spill: the writer's time runs. What it raises is counted and dropped, but for interrupts.
        """
        self._wake = wake

    def close(self) -> None:
        """Gives back all that it holds and takes no more. A second call changes nothing."""
        self._controller._close(self._holding)
        self._wake = None


@dataclass(slots=True, eq=False)
class _Holding:
    """The number of an account; apart from it, so that the controller keeps neither account nor store alive."""

    account: weakref.ref[MemoryAccount]
    name: str
    reserved_bytes: int = 0
    closed: bool = False

    @property
    def size_bytes(self) -> int:
        return 0 if self.closed else self.reserved_bytes


@dataclass(slots=True, eq=False)
class _Waiter:
    size_bytes: int
    news: SimpleQueue[None] = field(default_factory=SimpleQueue)  # hints that it is time to look again
    waiting: bool = True
    admitted: bool = False


def _require_bytes(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of bytes, at least {least}, not {value!r}")


def _after_fork() -> None:
    for controller in list(_CONTROLLERS):
        controller._clear()


_CONTROLLERS: weakref.WeakSet[MemoryController] = weakref.WeakSet()  # one fork handler for all, as in `lane`
os.register_at_fork(after_in_child=_after_fork)
