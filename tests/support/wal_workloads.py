"""Workloads on a state with a write-ahead log: what the handles of a `Story` do, one after the other."""

from __future__ import annotations

from collections.abc import Callable

from iopool import FileSystem
from tests.support.crash_workload import SECOND
from tests.support.simfs import SimFileSystem
from tests.support.wal_story import Story, number, word


def plain(s: Story) -> None:
    """One handle, everything that it can do."""
    s.append(0, number(1), number(2))
    s.append(1, word(1))
    s.remove(0, SECOND, 2 * SECOND)
    s.epoch(1)
    s.append(0, number(3))
    s.advance(5 * SECOND)
    s.prepare(2)
    s.append(0, number(4))
    s.append(1, word(2))
    s.commit()
    s.append(0, number(5))
    s.prepare(3)
    s.append(1, word(3))
    s.abort()
    s.append(0, number(6))
    s.epoch(4)
    s.append(0, number(7))
    s.restore(2)
    s.append(1, word(8))
    s.epoch(3)
    s.append(0, number(9))
    s.append(0, number(10))


def handles(s: Story) -> None:
    """One handle after the other, with and without a log."""
    s.append(0, number(1))
    s.append(1, word(1))
    s.open()
    s.append(0, number(2))
    s.prepare(1)
    s.append(0, number(3))
    s.open()
    s.commit()  # what the other one has prepared
    s.append(1, word(2))
    s.open("epoch")
    s.append(0, number(77))  # lost with the handle
    s.open("epoch")
    s.append(0, number(4))
    s.epoch(2)
    s.append(0, number(78))
    s.open()
    s.append(0, number(5))
    s.prepare(3)
    s.open()
    s.append(0, number(6))
    s.epoch(4)
    s.open()
    s.open()
    s.append(1, word(9))
    s.store.close()
    s.open()
    s.append(1, word(10))


def spilling(s: Story) -> None:
    """Rows that are in files before their epoch is, and in the log as well."""
    for n in range(1, 4):
        s.append(0, number(n), number(n + 10))
        s.append(1, word(n))
        if n == 2:
            s.open()
            s.remove(0, 0, 12 * SECOND)
    s.epoch(1)
    s.append(0, number(30))
    s.open("epoch")
    s.append(0, number(31))
    s.epoch(2)


WORKLOADS: dict[str, tuple[Callable[[Story], None], int]] = {
    "plain": (plain, 1 << 20),
    "handles": (handles, 1 << 20),
    "spilling": (spilling, 1),
}


def told(name: str, seen: Callable[[SimFileSystem], FileSystem] | None = None) -> Story:
    """A workload, run on an empty disk."""
    workload, memtable_bytes = WORKLOADS[name]
    disk = SimFileSystem()
    story = Story(disk, seen(disk) if seen else None, memtable_bytes)
    workload(story)
    return story
