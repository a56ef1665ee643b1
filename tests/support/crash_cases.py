"""The workloads of the crash tests: each small, each with another part of the protocol in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from unittest import mock

from iopool import FileSystem
from lsmstate import Options
from tests.support.crash_workload import SECOND, Driver, Row, rows_of, same_names
from tests.support.simfs import SimFileSystem

Workload = Callable[[Driver], None]


@dataclass(frozen=True)
class Case:
    """A workload, and the store that it needs."""

    name: str
    workload: Workload
    options: Options
    path: str
    deltas_max: int

    def run(self, seen: Callable[[SimFileSystem], FileSystem] | None = None) -> Driver:
        """Runs it on an empty disk; `seen` may put something between the store and the disk."""
        disk = SimFileSystem()
        with same_names(self.name), few_runs(), mock.patch("lsmstate.manifest.log.DELTAS_MAX", self.deltas_max):
            driver = Driver(disk, self.path, self.options, seen(disk) if seen else None)
            self.workload(driver)
        return driver


def few_runs() -> AbstractContextManager[object]:
    """Lets compaction begin as soon as a side has three runs, so that small workloads meet it."""
    return mock.patch("compaction.picker.MIXED_MAX", 2)


CASES: dict[str, Case] = {}


def case(
    *, retain: int = 10, memtable_bytes: int = 1 << 20, path: str | None = None, deltas_max: int = 64
) -> Callable[[Workload], Workload]:
    """Adds a workload to the cases."""

    def add(workload: Workload) -> Workload:
        name = workload.__name__
        options = Options(retain=retain, memtable_bytes=memtable_bytes)
        CASES[name] = Case(name, workload, options, path or f"/{name}", deltas_max)
        return workload

    return add


def number(n: int, second: float = 0) -> Row:
    """A row of side 0."""
    return (n, int((n + second) * SECOND), f"value {n}")


def word(n: int, second: float = 0) -> Row:
    """A row of side 1."""
    return (f"key {n}", int((n + second) * SECOND), n * 7)


@case(path="/made/by/creation")
def creation(d: Driver) -> None:
    d.append(0, number(1))
    d.epoch(1)


@case()
def plain_epochs(d: Driver) -> None:
    for n in range(1, 6):
        d.append(0, *(number(n, i) for i in range(n)))
        if n % 2:
            d.append(1, word(n), word(n, 0.5))
        d.epoch(n)


@case(retain=3)
def empty_epochs_and_gaps(d: Driver) -> None:
    d.epoch(1)
    d.append(1, word(1))
    d.epoch(5)
    d.epoch(6)
    d.append(0, number(2))
    d.epoch(40)
    d.append(1, word(3), word(4))
    d.epoch(41)


@case()
def prepare_then_commit(d: Driver) -> None:
    for n in range(1, 5):
        d.append(0, number(n))
        d.prepare(n)
        d.append(0, number(n + 100))
        d.append(1, word(n))
        d.commit(n)
    d.epoch(9)


@case()
def abort(d: Driver) -> None:
    d.append(0, number(1))
    d.epoch(1)
    d.append(1, word(2))
    d.prepare(2)
    d.append(0, number(3))
    d.abort(2)
    d.append(1, word(4))
    d.epoch(2)
    d.prepare(7)
    d.abort(7)
    d.append(0, number(5))
    d.epoch(3)


@case(retain=4)
def remove(d: Driver) -> None:
    d.append(0, number(1), number(2), number(3))
    d.append(1, word(1), word(2))
    d.epoch(1)
    d.remove(0, 2 * SECOND, 3 * SECOND)
    d.epoch(2)
    d.remove(1, 0, 9 * SECOND)
    d.append(1, word(2))
    d.append(0, number(2, 0.5))
    d.epoch(3)
    d.remove(0, 0, 9 * SECOND)
    d.epoch(4)
    d.append(0, number(1))
    d.epoch(5)


@case(retain=2)
def watermark(d: Driver) -> None:
    for n in range(1, 7):
        d.append(0, number(n * 8), number(n * 8, 1), number(n * 8, -3))  # the last epoch retires a part of a run
        d.append(1, word(n * 8, 2))
        d.advance(n * 8 * SECOND)
        d.epoch(n)


@case(memtable_bytes=1)
def spill(d: Driver) -> None:
    for n in range(1, 4):
        for part in range(3):
            d.append(part % 2, (word if part % 2 else number)(10 * n + part))
        d.epoch(n)


@case(memtable_bytes=1, retain=1)
def spill_after_prepare(d: Driver) -> None:
    for n in range(1, 5):
        d.append(0, number(n))
        d.prepare(n)
        d.append(1, word(n), word(n + 10))
        d.append(0, number(n + 20))
        d.commit(n)
    d.epoch(5)


@case()
def restore(d: Driver) -> None:
    for n in range(1, 4):
        d.append(0, number(n))
        d.epoch(n)
    d.append(1, word(9))
    d.restore(1)
    d.append(1, word(2))
    d.epoch(2)
    d.append(0, number(30))
    d.epoch(3)
    d.restore(2)
    d.epoch(4)


@case(retain=2)
def garbage_of_two_epochs(d: Driver) -> None:
    for n in range(1, 7):
        d.append(n % 2, (word if n % 2 else number)(n))
        d.remove(0, 0, n * SECOND)
        d.advance((n * 5) * SECOND)
        d.epoch(n)


@case(retain=1, memtable_bytes=1)
def garbage_of_one_epoch(d: Driver) -> None:
    for n in range(1, 6):
        d.append(0, number(20 * n))
        d.append(1, word(20 * n))
        d.advance(20 * n * SECOND + SECOND)
        d.epoch(n)


@case(retain=2, deltas_max=2)
def full_manifests_between_deltas(d: Driver) -> None:
    for n in range(1, 7):
        d.append(0, number(n * 6))
        d.advance(n * 6 * SECOND)
        d.epoch(n)


@case(retain=3)
def branch(d: Driver) -> None:
    for n in range(1, 4):
        d.append(0, number(n))
        d.append(1, word(n))
        d.epoch(n)
    d.branch(2, "/branches/second")
    d.append(0, number(4))
    d.epoch(4)
    d.branch(4, "/branches/fourth")


@case(retain=1)
def snapshot_while_garbage_is_collected(d: Driver) -> None:
    d.append(0, number(1))
    d.epoch(1)
    held = d.store.snapshot()
    expected = d.now.visible()
    for n in range(2, 5):
        d.append(0, number(n * 20), number(n * 20, 1))
        d.advance(n * 20 * SECOND)
        d.epoch(n)
    assert rows_of(held) == expected
    held.close()
    d.append(1, word(100))
    d.epoch(5)


@case(retain=2, memtable_bytes=1)
def a_handle_after_the_other(d: Driver) -> None:
    d.append(0, number(1))
    d.epoch(1)
    d.append(0, number(99))  # spilled, never committed
    d = d.again("w1")
    d.append(1, word(2))
    d.prepare(2)
    d = d.again("w2")
    d.commit(2)
    d.append(0, number(3))
    d.prepare(3)
    d = d.again("w3")
    d.abort(3)
    d.append(1, word(4))
    d.epoch(4)


@case(retain=2)
def a_zombie_is_fenced(d: Driver) -> None:
    d.append(0, number(1))
    d.epoch(1)
    zombie, d = d, d.again("w1")
    zombie.append(0, number(50))
    zombie.prepare(2)
    d.append(1, word(2))
    since = len(d.disk.journal)
    d.epoch(2)
    zombie.fenced(2, since)
    d.append(0, number(3))
    d.epoch(3)
    d.append(0, number(4))
    d.epoch(4)


@case(retain=2, memtable_bytes=1, deltas_max=3)
def all_together(d: Driver) -> None:
    d.append(0, number(1), number(2))
    d.epoch(1)
    d.append(1, word(1), word(2))
    d.remove(0, SECOND, 2 * SECOND)
    d.prepare(2)
    d.append(0, number(15))
    d.abort(2)
    d.epoch(2)
    d.advance(14 * SECOND)
    d.append(1, word(16))
    d.epoch(3)
    d.restore(2)
    d.append(0, number(3))
    d.prepare(3)
    d.append(0, number(4))
    d.commit(3)
    d.remove(1, 0, 2 * SECOND)
    d.append(1, word(1))
    d.epoch(4)
