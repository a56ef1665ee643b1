"""The memory controller: limits, order of admission, and what is left after an interrupt, a fork or a lost account."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iopool import MemoryAccount, MemoryController, MemoryTimeout

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


@pytest.fixture
def memory() -> MemoryController:
    return MemoryController(60, 100, timeout=PATIENCE)


@pytest.fixture
def hints_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by themselves: whoever makes room has to tell."""
    monkeypatch.setattr("iopool.memory.LOOK_AGAIN_SECONDS", 10 * PATIENCE)


@pytest.mark.parametrize(
    ("soft", "hard", "timeout"),
    [(0, 1, 1), (-1, 1, 1), (1, 0, 1), (3, 2, 1), (True, 2, 1), (1, True, 1), (1.0, 2, 1), (1, "2", 1), (None, 2, 1)]
    + [(1, 2, timeout) for timeout in (0, -1, math.nan, True, None, "1")],
)
def test_limits_without_sense_are_refused(soft: Any, hard: Any, timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"soft_bytes|hard_bytes|timeout"):
        MemoryController(soft, hard, timeout=timeout)


@pytest.mark.parametrize("size", [-1, True, 1.0, "1", None])
def test_sizes_without_sense_are_refused(memory: MemoryController, size: Any) -> None:
    account = memory.account("a")
    for act in (account.reserve, account.release):
        with pytest.raises(ValueError, match="size_bytes"):
            act(size)
    for timeout in (-1, math.nan, True):
        with pytest.raises(ValueError, match="timeout"):
            account.reserve(1, timeout)
    assert memory.usage().used_bytes == 0


def test_usage_tells_what_each_account_holds(memory: MemoryController) -> None:
    a, b, again = memory.account("a"), memory.account("b"), memory.account("b")
    a.reserve(30)
    b.reserve(20)
    again.reserve(5)
    a.release(10)
    assert (a.used_bytes, b.used_bytes, again.used_bytes) == (20, 20, 5)
    usage = memory.usage()
    assert (usage.soft_bytes, usage.hard_bytes, usage.used_bytes, usage.peak_bytes) == (60, 100, 45, 55)
    assert usage.accounts == {"a": 20, "b": 25}
    assert (usage.waiting, usage.waits, usage.timeouts, usage.waited_s) == (0, 0, 0, 0.0)


def test_release_of_more_than_is_held_is_refused_and_changes_nothing(memory: MemoryController) -> None:
    account = memory.account("a")
    account.reserve(10)
    with pytest.raises(ValueError, match=r"'a' holds 10 .* release 11"):
        account.release(11)
    assert account.used_bytes == 10


def test_soft_limit_asks_the_store_above_its_fair_share(memory: MemoryController) -> None:
    large, small, _idle = memory.account("large"), memory.account("small"), memory.account("idle")
    large.reserve(40)
    small.reserve(20)
    assert not large.should_spill()  # at the limit, not over it
    small.reserve(9)
    assert large.should_spill()  # the share is 30: the idle one has none
    assert not small.should_spill()
    small.reserve(1)
    assert small.should_spill()
    large.release(40)
    assert not small.should_spill()


def test_store_that_holds_anything_is_asked_while_a_writer_waits(memory: MemoryController) -> None:
    holder, other, idle = memory.account("holder"), memory.account("other"), memory.account("idle")
    holder.reserve(5)
    assert not holder.should_spill()
    writer = waiting_writer(memory, other, 96)
    assert not memory.usage().used_bytes > memory.usage().soft_bytes
    assert holder.should_spill()
    assert not idle.should_spill()
    holder.release(5)
    assert writer.ended() is None
    assert not idle.should_spill()


@pytest.mark.usefixtures("hints_only")
def test_hard_limit_blocks_until_enough_is_released(memory: MemoryController) -> None:
    a, b = memory.account("a"), memory.account("b")
    a.reserve(100)
    writer = waiting_writer(memory, b, 50)
    a.release(49)  # one too few; the peak would show it
    a.release(1)
    assert writer.ended() is None
    assert memory.usage().accounts == {"a": 50, "b": 50}
    assert (memory.usage().waiting, memory.usage().waits, memory.usage().peak_bytes) == (0, 1, 100)
    assert memory.usage().waited_s > 0


def test_timeout_says_the_figures_and_reserves_nothing(memory: MemoryController) -> None:
    a, b = memory.account("a"), memory.account("b")
    a.reserve(70)
    b.reserve(7)
    for timeout in (0, SOON):
        with pytest.raises(
            MemoryTimeout, match=r"'b' asked for 24 .* 77 bytes are used \(7 by itself\).* 100;"
        ) as caught:
            b.reserve(24, timeout)
    for advice in ("batch smaller", "raise the hard limit", "disk that spills go to"):
        assert advice in str(caught.value)
    usage = memory.usage()
    assert (usage.accounts, usage.waiting, usage.timeouts) == ({"a": 70, "b": 7}, 0, 2)
    b.reserve(23)  # no room went with the timeout


def test_controller_timeout_holds_for_a_reserve_that_names_none() -> None:
    memory = MemoryController(1, 1, timeout=SOON)
    with memory.account("a") as a, memory.account("b") as b:
        a.reserve(1)
        with pytest.raises(MemoryTimeout, match=f"within {SOON} s"):
            b.reserve(1)


def test_reserve_of_nothing_passes_even_while_others_wait(memory: MemoryController) -> None:
    a, b = memory.account("a"), memory.account("b")
    a.reserve(100)
    writer = waiting_writer(memory, b, 1)
    b.reserve(0)
    assert (memory.usage().waits, memory.usage().waiting) == (1, 1)
    a.close()
    assert writer.ended() is None


def test_oversize_batch_passes_alone_and_others_wait_meanwhile(memory: MemoryController) -> None:
    a, b = memory.account("a"), memory.account("b")
    a.reserve(1)
    oversize = waiting_writer(memory, b, 1000)
    a.release(1)
    assert oversize.ended() is None
    with pytest.raises(MemoryTimeout):
        b.reserve(101, SOON)  # one oversize batch at a time, also in one account
    small = waiting_writer(memory, a, 1)
    assert memory.usage().accounts == {"a": 0, "b": 1000}
    b.release(1000)
    assert small.ended() is None


def test_oversize_batch_passes_beside_what_its_own_store_was_not_asked_to_spill(memory: MemoryController) -> None:
    account = memory.account("a")
    account.reserve(60)
    assert not account.should_spill()
    account.reserve(101)
    assert account.should_spill()
    assert account.used_bytes == 161


@pytest.mark.usefixtures("hints_only")
def test_writers_are_admitted_in_the_order_they_came(memory: MemoryController) -> None:
    holder, accounts = memory.account("holder"), [memory.account(name) for name in "abcd"]
    holder.reserve(100)
    writers = [waiting_writer(memory, a, size) for a, size in zip(accounts, (90, 101, 1, 9), strict=True)]
    holder.release(50)  # room for the small ones, which came later
    with pytest.raises(MemoryTimeout):
        memory.account("late").reserve(1, SOON)
    assert memory.usage().waiting == 4
    holder.release(50)
    assert writers[0].ended() is None
    assert memory.usage().waiting == 3
    accounts[0].release(90)
    assert writers[1].ended() is None
    assert memory.usage().waiting == 2
    accounts[1].release(101)
    assert [writer.ended() for writer in writers[2:]] == [None, None]
    assert memory.usage().accounts == {"holder": 0, "a": 0, "b": 0, "c": 1, "d": 9}


@pytest.mark.usefixtures("hints_only")
def test_writer_that_gives_up_lets_the_next_one_pass(memory: MemoryController) -> None:
    a, b, c = memory.account("a"), memory.account("b"), memory.account("c")
    a.reserve(50)
    writers: list[Writer] = []

    def come_next() -> None:  # called while b's writer is the first in the queue
        a.on_pressure(None)
        writers.append(waiting_writer(memory, c, 50))

    a.on_pressure(come_next)
    with pytest.raises(MemoryTimeout):
        b.reserve(51, SOON)
    assert writers[0].ended() is None


@pytest.mark.usefixtures("hints_only")
def test_closed_account_gives_back_all_and_wakes_waiters(memory: MemoryController) -> None:
    a, b = memory.account("a"), memory.account("b")
    with a:
        a.reserve(100)
        writer = waiting_writer(memory, b, 80)
    assert writer.ended() is None
    a.close()
    a.release(70)  # of a spill that ended late
    assert not a.should_spill()
    assert (a.used_bytes, memory.usage().accounts) == (0, {"b": 80})
    with pytest.raises(ValueError, match="'a' is closed"):
        a.reserve(1)
    assert memory.usage().waiting == 0


@pytest.mark.usefixtures("hints_only")
def test_writer_of_an_account_that_gets_closed_stops_waiting(memory: MemoryController) -> None:
    a, b = memory.account("a"), memory.account("b")
    a.reserve(100)
    writer = waiting_writer(memory, b, 1)
    b.close()
    assert isinstance(writer.ended(), ValueError)
    assert (memory.usage().waiting, memory.usage().accounts) == (0, {"a": 100})


@pytest.mark.usefixtures("hints_only")
def test_garbage_collected_store_gives_back_what_it_held(memory: MemoryController) -> None:
    class Store:
        def __init__(self) -> None:
            self.account = memory.account("lost")
            self.account.on_pressure(self.spill)  # a cycle, and the controller must not hold on to it

        def spill(self) -> None:
            pass

    store = Store()
    store.account.reserve(100)
    writer = waiting_writer(memory, memory.account("b"), 100)
    del store
    until(lambda: gc.collect() >= 0 and not writer.is_alive())  # the writer may be calling the wake just now
    assert writer.ended() is None
    assert "lost" not in memory.usage().accounts


def test_pressure_makes_stores_spill_own_first_then_the_largest(memory: MemoryController) -> None:
    accounts = {name: memory.account(name) for name in ("small", "own", "large", "none")}
    calls: list[str] = []

    def spiller(name: str) -> Callable[[], None]:
        def spill() -> None:
            assert memory.usage().waiting == 1
            calls.append(name)
            if name == "large":
                accounts[name].release(accounts[name].used_bytes)

        return spill

    for (name, account), size in zip(accounts.items(), (10, 5, 85, 0), strict=True):
        account.on_pressure(spiller(name))
        account.reserve(size)
    accounts["own"].reserve(50, 0)  # room made by a wake counts even if there is no time to wait
    assert calls == ["own", "large", "small"]
    accounts["small"].on_pressure(None)
    with pytest.raises(MemoryTimeout):
        accounts["none"].reserve(50, 0)
    assert calls == ["own", "large", "small", "own"]
    assert memory.usage().pressure_errors == 0


def test_pressure_reaches_a_store_that_came_to_hold_memory_only_later(memory: MemoryController) -> None:
    a, b, c = memory.account("a"), memory.account("b"), memory.account("c")
    a.reserve(100)
    b.on_pressure(lambda: b.release(b.used_bytes))
    first = waiting_writer(memory, b, 100)
    second = waiting_writer(memory, c, 100)
    a.release(100)
    assert [first.ended(), second.ended()] == [None, None]
    assert memory.usage().accounts == {"a": 0, "b": 0, "c": 100}


def test_raising_pressure_callback_harms_nobody(memory: MemoryController) -> None:
    bad, good, asking = memory.account("bad"), memory.account("good"), memory.account("asking")

    def fail() -> None:
        raise OSError("disk full")

    bad.on_pressure(fail)
    good.on_pressure(lambda: good.release(good.used_bytes))
    bad.reserve(60)
    good.reserve(40)
    asking.reserve(40)
    assert memory.usage().pressure_errors == 1
    assert memory.usage().accounts == {"bad": 60, "good": 0, "asking": 40}
    assert memory.usage().waiting == 0


def run_script(body: str) -> str:
    """Runs Python code in a process of its own; gives its output."""
    prelude = "import os, signal, sys, threading, time\nfrom iopool import *\nmemory = MemoryController(60, 100)\n"
    prelude += "a, b, c = map(memory.account, 'abc')\n"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", prelude + body]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_interrupt_leaves_no_reservation_and_no_ghost_in_the_queue() -> None:
    script = """
a.reserve(100)
def strike():
    while memory.usage().waiting != 1:
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=strike).start()
try:
    b.reserve(101)
except KeyboardInterrupt:
    print("interrupted")
assert (memory.usage().accounts, memory.usage().waiting) == ({"a": 100, "b": 0, "c": 0}, 0)
a.release(1)
c.reserve(1, 0)
"""
    assert run_script(script) == "interrupted"


def test_two_interrupts_on_the_way_out_give_the_reservation_back() -> None:
    script = """
count, tell = MemoryController._count, MemoryController._tell_first
def strike_again(memory):
    MemoryController._tell_first = tell
    signal.raise_signal(signal.SIGINT)
def strike_when_admitted(memory, counter, more=1):
    count(memory, counter, more)
    if counter == "waited_s":
        assert memory.usage().accounts["b"] == 100
        MemoryController._tell_first = strike_again
        signal.raise_signal(signal.SIGINT)
MemoryController._count = strike_when_admitted
a.reserve(100)
a.on_pressure(lambda: a.release(100))
try:
    b.reserve(100)
except KeyboardInterrupt:
    print("interrupted")
assert MemoryController._tell_first is tell
assert (b.used_bytes, memory.usage().waiting) == (0, 0)
c.reserve(100, 0)
"""
    assert run_script(script) == "interrupted"


def test_storm_of_interrupts_loses_no_byte() -> None:
    script = """
under_fire = False
def strike(_, frame):
    while frame is not None and under_fire:
        if frame.f_code.co_filename.endswith("memory.py"):  # once reserve has returned, the bytes are the caller's
            raise KeyboardInterrupt
        frame = frame.f_back
signal.signal(signal.SIGINT, strike)
stop = threading.Event()
def keep_taking():
    while not stop.is_set():
        c.reserve(60)
        c.release(60)
others = [threading.Thread(target=keep_taking) for _ in range(2)]
for other in others:
    other.start()
target = os.getpid()
storm = os.fork()
if storm == 0:
    while os.getppid() == target:
        os.kill(target, signal.SIGINT)
        time.sleep(0.0002)
    os._exit(0)
hits, end = 0, time.monotonic() + 30
while hits < 1000 and time.monotonic() < end:
    expected = size = 1 if hits % 3 else 50
    try:
        try:
            under_fire = True
            a.reserve(size)
        finally:
            under_fire = False
    except KeyboardInterrupt:
        hits, expected = hits + 1, 0
    assert a.used_bytes == expected, (a.used_bytes, expected)
    a.release(expected)
os.kill(storm, signal.SIGKILL)
os.waitpid(storm, 0)
stop.set()
for other in others:
    other.join()
usage = memory.usage()
assert hits > 20 and (usage.used_bytes, usage.waiting) == (0, 0) and usage.peak_bytes <= 100, (hits, usage)
"""
    run_script(script)


def test_forked_child_has_an_empty_controller_and_the_parent_keeps_its_own() -> None:
    script = """
a.reserve(100)
waiter = threading.Thread(target=lambda: b.reserve(50))
waiter.start()
while memory.usage().waiting != 1:
    os.sched_yield()
with memory._lock:  # the worst moment: as if another thread were in the middle of a change
    child = os.fork()
if child == 0:
    code = 1
    try:
        usage = memory.usage()
        assert usage == MemoryUsage(60, 100, accounts={"a": 0, "b": 0, "c": 0}), usage
        a.reserve(100)
        a.on_pressure(lambda: a.release(100))
        c.reserve(100)
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
assert memory.usage().accounts == {"a": 100, "b": 0, "c": 0}
a.release(50)
waiter.join()
assert memory.usage().accounts == {"a": 50, "b": 50, "c": 0}
"""
    run_script(script)


def test_writer_that_forks_while_it_waits_is_admitted_in_the_child() -> None:
    script = """
children = []
def fork():
    if not children:
        children.append(os.fork())
a.reserve(100)
a.on_pressure(fork)
try:
    b.reserve(100, 0.001)
except MemoryTimeout:
    assert children[0] > 0 and os.waitpid(children[0], 0)[1] == 0
    print("parent")
else:
    os._exit(0 if memory.usage().accounts == {"a": 0, "b": 100, "c": 0} else 1)
"""
    assert run_script(script) == "parent"


@pytest.fixture(scope="module")  # of the module, because hypothesis wants no fixture between examples
def frequent_switches() -> Iterator[None]:
    """Threads take turns often, and always between a look at the total and what follows from it."""
    before, used = sys.getswitchinterval(), MemoryController._used

    def used_a_moment_ago(memory: MemoryController) -> int:
        total = used(memory)
        os.sched_yield()
        return total

    sys.setswitchinterval(1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryController, "_used", used_a_moment_ago)
        yield
    sys.setswitchinterval(before)


SIZES = st.lists(st.sampled_from([1, 7, 30, 60, 99, 100, 101, 250]), max_size=8)


@settings(max_examples=60, deadline=None)
@given(plans=st.lists(SIZES, min_size=1, max_size=4), stores=st.integers(1, 3))
@pytest.mark.usefixtures("frequent_switches")
def test_threads_never_pass_the_hard_limit_but_for_one_oversize_batch(plans: list[list[int]], stores: int) -> None:
    memory = MemoryController(60, 100, timeout=PATIENCE)
    accounts = [memory.account(str(number)) for number in range(stores)]
    kept: list[deque[int]] = [deque() for _ in accounts]  # the memtables
    looks: list[tuple[int, ...]] = []
    lock, start, errors = threading.Lock(), threading.Barrier(len(plans)), deque[BaseException]()
    total: list[int] = []  # reserved, and not yet about to be released

    def spill(store: int) -> None:
        while kept[store]:
            try:
                size = kept[store].popleft()
            except IndexError:  # another spill was faster
                return
            with lock:
                total.remove(size)
            accounts[store].release(size)

    def write(store: int, sizes: list[int]) -> None:
        try:
            start.wait(PATIENCE)
            for size in sizes:
                if accounts[store].should_spill():
                    spill(store)
                accounts[store].reserve(size)
                with lock:
                    total.append(size)
                    looks.append(tuple(total))
                kept[store].append(size)
        except BaseException as error:
            errors.append(error)

    for store, account in enumerate(accounts):
        account.on_pressure(partial(spill, store))
    threads = [threading.Thread(target=write, args=(n % stores, plan), daemon=True) for n, plan in enumerate(plans)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for store in range(stores):
        spill(store)
    assert not errors
    for look in looks:
        assert sum(size > 100 for size in look) <= 1
        assert sum(size for size in look if size <= 100) <= 100
    usage = memory.usage()
    assert (usage.used_bytes, usage.waiting, usage.timeouts, usage.pressure_errors) == (0, 0, 0, 0)
    assert sum(map(len, plans)) == len(looks)
