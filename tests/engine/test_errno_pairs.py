"""Two errors of file operations, one while the first is being got over: nothing that was acknowledged is lost.

As in `test_errno.py`, an operation of the workload fails; then the same handle repeats the call and goes on, and a
second operation fails on that way. What the disk holds then is what was acknowledged, or a newer complete epoch.
The pairs that a run goes through are spread over all of them: `errno_pairs` of the table of sizes.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator

import pytest

from lsmstate import EpochError, LsmStateError, StorePoisonedError
from tests.conftest import Figures
from tests.engine.test_errno import OPTIONS, STEPS, STORY, Fault, is_in_doubt, is_the_fault
from tests.support.crash_cases import few_runs
from tests.support.crash_check import Checker, unsynced_lost
from tests.support.crash_memo import decoded_once, encoded_once
from tests.support.crash_workload import Driver, Epochs, same_names
from tests.support.simfs import SimFileSystem
from tests.support.sizes import size

PAIRS = size("errno_pairs")
CODES = (errno.ENOSPC, errno.EIO, errno.EMFILE)
PARTS = 4
LATER_MAX = 120  # operations between the two


@pytest.fixture(autouse=True)
def decoders() -> Iterator[None]:
    with decoded_once(), encoded_once(), few_runs():
        yield


def clean_run() -> tuple[int, list[Epochs]]:
    """The operations of the workload if nothing fails, and every state that it acknowledges."""
    with same_names("errno"):
        driver = Driver(SimFileSystem(), STORY.path, OPTIONS)
        for step in STEPS:
            step(driver)
    return driver.disk.ops, [p.epochs for p in driver.story.publications]


@pytest.mark.parametrize("part", range(PARTS))
def test_second_error_while_the_first_is_got_over_loses_nothing(part: int, figures: Figures) -> None:
    operations, states = clean_run()
    checker, rng = Checker([STORY], OPTIONS), random.Random(part)
    both = 0
    for _ in range(max(1, PAIRS // PARTS)):
        first, second = rng.randrange(operations), 1 + rng.randrange(LATER_MAX)
        codes = rng.choice(CODES), rng.choice(CODES)
        both += fail_twice(first, second, codes, states, checker)
    assert both > 0, "there never were two errors"
    figures.add("pairs of errors of file operations survived", both)


def fail_twice(first: int, second: int, codes: tuple[int, int], states: list[Epochs], checker: Checker) -> bool:
    """Runs the workload with two errors; gives whether there were two."""
    faults = [Fault(first, codes[0])]
    disk = SimFileSystem(fault=faults[0])
    driver: Driver | None = None
    where = f"operations {first} and {second} later, {codes}"
    try:
        with same_names("errno"):
            for at in range(-1, len(STEPS)):
                while True:
                    try:
                        if at < 0:
                            driver = Driver(disk, STORY.path, OPTIONS)
                        else:
                            assert driver is not None
                            STEPS[at](driver)
                        break
                    except (OSError, LsmStateError) as error:
                        if len(faults) == 2 and faults[1].hit is not None:
                            return ends(error, faults, disk, driver, states, checker)
                        if not is_the_fault(error, faults[0]):
                            raise
                        if faults[0].poisons or is_in_doubt(faults[0]):
                            return ends(error, faults, disk, driver, states, checker)
                        faults[1:] = [Fault(disk.ops + second, codes[1])]
                        disk.fault = faults[1]
        return False
    except Exception as error:
        raise AssertionError(f"{where}, {[fault.hit for fault in faults]}: {error!r}") from error


def ends(
    error: Exception,
    faults: list[Fault],
    disk: SimFileSystem,
    driver: Driver | None,
    states: list[Epochs],
    checker: Checker,
) -> bool:
    """Looks at what is left after the second error, or after one that ends the handle."""
    told = isinstance(error, StorePoisonedError | EpochError) or any(is_the_fault(error, f) for f in faults)
    assert told, f"raised {error!r}"
    committed = driver.story.publications[-1].epochs if driver else None
    at = -1 if committed is None else max(n for n, epochs in enumerate(states) if epochs == committed)
    allowed: list[Epochs | None] = [committed, *states[max(at, 0) : at + 2]]
    for image in (unsynced_lost(disk), disk.copy()):
        found = checker.recover(image, STORY)
        assert found in allowed or (committed is None and found == {}), f"{found} is not one of {allowed}"
    disk.fault = None
    if driver is not None:
        with contextlib.suppress(LsmStateError):
            assert driver.store.verify() == []
    return len(faults) == 2
