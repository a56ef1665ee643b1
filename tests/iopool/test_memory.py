"""The memory controller: its limits, who is asked to spill, and that no number of threads passes the hard one."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iopool import MemoryController, MemoryTimeout
from tests.support.memory import PATIENCE, SOON, waiting_writer


@pytest.fixture
def memory() -> MemoryController:
    return MemoryController(60, 100, timeout=PATIENCE)


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


@settings(max_examples=60)
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
