"""The workloads of the crash tests that compact: merges that are adopted at once, late, never, or after a restore.

All cases compact as soon as a side has three runs; these are made for it.
"""

from __future__ import annotations

from unittest import mock

from tests.support.crash_cases import case, number, word
from tests.support.crash_workload import SECOND, Driver, rows_of


@case(retain=2)
def small_runs_are_merged(d: Driver) -> None:
    for n in range(1, 8):
        d.append(0, number(n), number(n, 0.5))
        if n % 3 == 0:
            d.append(1, word(n))
        d.epoch(n)


@case(retain=2)
def settled_units_are_gathered(d: Driver) -> None:
    for n in range(1, 9):
        d.append(0, number(n * 3), number(n * 3, -4), number(n * 3, -8))
        d.append(1, word(n * 3, -2), word(n * 3))
        d.advance((n * 3 - 8) * SECOND)
        d.epoch(n)


@case(retain=3, memtable_bytes=1)
def rows_are_removed_before_a_merge_is_adopted(d: Driver) -> None:
    for n in range(1, 7):
        d.append(0, number(n), number(n + 1, 0.5), number(n + 2, 0.25))
        d.epoch(n)
        d.remove(0, n * SECOND, (n + 1) * SECOND)
        d.append(1, word(n))
    d.epoch(7)
    d.epoch(8)


@case(retain=4)
def merges_and_time_travel(d: Driver) -> None:
    for n in range(1, 5):
        d.append(0, number(n), number(n * 2, 0.5))
        d.epoch(n)
    d.remove(0, 0, 3 * SECOND)
    d.advance(9 * SECOND)
    d.epoch(5)
    d.restore(3)
    d.append(0, number(2, 0.1))
    d.epoch(4)
    d.branch(4, "/branches/merged")
    d.append(0, number(7))
    d.epoch(5)
    d = d.again("w1")
    d.append(0, number(8))
    d.epoch(6)
    d.epoch(7)


@case(retain=1)
def a_merge_waits(d: Driver) -> None:
    for n in range(1, 4):
        d.append(0, number(n))
        d.epoch(n)
    zombie, d = d, d.again("w1")  # has not seen the merge that the last epoch has left
    for n in range(4, 8):
        with mock.patch("lsmstate.engine.compactor.read_notes", return_value=[]):
            d.append(0, number(n))
            d.epoch(n)
    d.append(0, number(8))
    d.epoch(8)
    d.epoch(9)
    assert rows_of(zombie.store)


@case(retain=4)
def a_merge_is_overtaken_by_a_restore(d: Driver) -> None:
    for n in range(1, 4):
        d.append(0, number(n), number(n, 0.5))
        d.append(1, word(n))
        d.epoch(n)
    d.advance(13 * SECOND)
    d.remove(1, 0, 9 * SECOND)
    d.epoch(4)
    d.restore(3)
    d.epoch(4)
    d.epoch(5)


@case(retain=2)
def equal_keys_are_merged(d: Driver) -> None:
    for n in range(1, 6):
        d.append(0, *((7, (20 * i - n) * SECOND // 20, f"{n}/{i}") for i in range(9)))
        d.epoch(n)
