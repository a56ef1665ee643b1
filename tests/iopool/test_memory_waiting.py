"""Waiting for memory: the order of admission, what wakes a writer, and whom the pressure makes spill."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

from iopool import MemoryController, MemoryTimeout
from tests.support.memory import PATIENCE, SOON, Writer, until, waiting_writer


@pytest.fixture
def memory() -> MemoryController:
    return MemoryController(60, 100, timeout=PATIENCE)


@pytest.fixture
def hints_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by themselves: whoever makes room has to tell."""
    monkeypatch.setattr("iopool.memory.LOOK_AGAIN_SECONDS", 10 * PATIENCE)


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


def test_writer_that_is_not_first_is_asked_for_its_own_again_and_again(memory: MemoryController) -> None:
    """It waits, and holds what the first one needs: while it does, only its own thread can make its store spill."""
    a, b = memory.account("a"), memory.account("b")
    b.reserve(100)
    first = waiting_writer(memory, a, 40)
    second: list[Writer] = []
    asked: list[int] = []

    def spill_slowly() -> None:
        if second and threading.current_thread() is second[0]:
            asked.append(1)
            if len(asked) == 3:
                b.release(100)

    b.on_pressure(spill_slowly)
    second.append(waiting_writer(memory, b, 40))
    assert first.ended() is None
    assert second[0].ended() is None
    assert len(asked) >= 3
