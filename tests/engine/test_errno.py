"""An error of any file operation is raised as what it is, loses nothing that was acknowledged, and can be got over.

One workload is run once for every operation that it does, and that operation fails. Then: the handle still reads all
that is committed; a failed fsync has poisoned it, otherwise the call can be repeated; a power cut or a new handle
finds the last acknowledged epoch or a newer complete one; and the new handle can do everything again.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from lsmstate import EpochError, FencedError, LsmStateError, Options, StorePoisonedError
from tests.conftest import Figures
from tests.support.crash_cases import few_runs
from tests.support.crash_check import Checker, unsynced_lost
from tests.support.crash_memo import decoded_once, encoded_once
from tests.support.crash_workload import SECOND, Driver, Epochs, Story, batch, rows_of, same_names
from tests.support.simfs import SimFileSystem

STORY = Story("/state", created=True)
OPTIONS = Options(retain=2, memtable_bytes=1)
CODES = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EMFILE, errno.EROFS, errno.EDQUOT, errno.ENOTSUP)
CHANGES = ("create", "write", "link", "make_dir", "lock", "unlink", "sync", "sync_dir")
SPILLS_MAX = 3
HANGS_AFTER_SECONDS = 120

Step = Callable[[Driver], None]


def number(n: int) -> tuple[object, int, object]:
    return (n, n * SECOND, f"value {n}")


def read_and_hold(d: Driver) -> None:
    with d.store.snapshot() as view:
        assert rows_of(view) == d.now.visible()
    with d.store.at_epoch(1) as view:
        assert rows_of(view) == d.story.publications[-1].epochs[1]


def forget(d: Driver) -> None:
    """Aborts; repeated after all was done but told, there is nothing left to abort."""
    with contextlib.suppress(EpochError):
        d.abort(3)


def whole_epoch(epoch: int) -> Step:
    """Prepares and commits; repeated after it had come as far as its commit, it does that alone."""

    def step(d: Driver) -> None:
        try:
            d.epoch(epoch)
        except EpochError:
            d.finish(epoch)

    return step


STEPS: tuple[Step, ...] = (
    lambda d: d.append(0, number(1), number(2)),
    lambda d: d.append(1, ("one", SECOND, 1)),
    lambda d: d.append(0, number(3)),
    lambda d: d.append(0, number(4)),
    whole_epoch(1),
    lambda d: d.append(0, number(5)),
    lambda d: d.prepare(2),
    lambda d: d.append(1, ("two", 9 * SECOND, 2)),
    lambda d: d.commit(2),
    read_and_hold,
    lambda d: d.remove(0, 0, 2 * SECOND),
    lambda d: d.advance(16 * SECOND),
    lambda d: d.prepare(3),
    forget,
    whole_epoch(4),
    Driver.reopen,
    whole_epoch(5),
    lambda d: d.restore(4),
    lambda d: d.append(0, number(30)),
    whole_epoch(5),
    lambda d: d.branch(5, f"/branch-{d.disk.ops}"),  # what was cut short is no place for another
)


@dataclass
class Fault:
    """Fails one operation, or, if it is sticky, from there on every one that changes the disk."""

    index: int
    code: int
    sticky: bool = False
    hit: tuple[str, str] | None = field(default=None, init=False)
    poisons: bool = field(default=False, init=False)  # an fsync has failed

    def __call__(self, op: str, path: str, at: int) -> None:
        if at == self.index or (self.sticky and at > self.index and op in CHANGES):
            self.hit = self.hit or (op, path)
            self.poisons |= op in ("sync", "sync_dir")
            raise OSError(self.code, os.strerror(self.code), path)


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True)
    with decoded_once(), encoded_once(), few_runs():
        yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def clean() -> list[list[Epochs]]:
    """What is committed after each step, the first being to open, if nothing fails. It does compact."""
    with same_names("errno"), few_runs():
        driver = Driver(SimFileSystem(), STORY.path, OPTIONS)
    states = [[p.epochs for p in driver.story.publications]]
    with few_runs():
        for step in STEPS:
            step(driver)
            states.append([p.epochs for p in driver.story.publications])
    assert any("/merges/" in entry.path for entry in driver.disk.journal)
    return states


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_error_of_any_operation_loses_nothing_and_can_be_got_over(
    code: int, clean: list[list[Epochs]], figures: Figures
) -> None:
    fail_everywhere(lambda fault: SimFileSystem(fault=fault), code, clean, figures)


def test_operation_that_is_done_and_yet_fails_loses_nothing(clean: list[list[Epochs]], figures: Figures) -> None:
    fail_everywhere(lambda fault: SimFileSystem(fault_after=fault), errno.EIO, clean, figures)


def test_write_that_stops_halfway_loses_nothing(clean: list[list[Epochs]], figures: Figures) -> None:
    fail_everywhere(lambda f: SimFileSystem(fault=f, short_write_bytes=700), errno.ENOSPC, clean, figures)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_disk_that_stays_full_or_read_only_loses_nothing(
    code: int, clean: list[list[Epochs]], figures: Figures
) -> None:
    fail_everywhere(lambda fault: SimFileSystem(fault=fault), code, clean, figures, sticky=True)


def test_abort_after_a_commit_in_doubt_does_not_claim_to_have_forgotten_it() -> None:
    disk = SimFileSystem()
    driver = Driver(disk, STORY.path, OPTIONS)
    driver.append(0, number(1))
    driver.prepare(1)
    disk.fault = Fault(disk.ops + 1, errno.EIO)  # right after the link of the head
    with pytest.raises(OSError, match="Input/output error"):
        driver.store.commit(1)
    disk.fault = None
    try:
        driver.store.abort(1)
    except LsmStateError:
        return  # only a new handle can tell
    driver.reopen()
    assert driver.store.epochs() == []


def fail_everywhere(
    mount: Callable[[Fault], SimFileSystem],
    code: int,
    clean: list[list[Epochs]],
    figures: Figures,
    sticky: bool = False,
    kind: type[Fault] = Fault,
    least: int = 100,
) -> None:
    """Runs the workload with each of its operations failing, until there is no operation left to fail."""
    index = 0
    checker = Checker([STORY], OPTIONS)
    while True:
        fault = kind(index, code, sticky)
        with same_names("errno"):
            fail_once(mount(fault), fault, clean, checker)
        if fault.hit is None:
            break
        index += 1
    assert index > least
    figures.add("errors of file operations survived", index)


def fail_once(disk: SimFileSystem, fault: Fault, clean: list[list[Epochs]], checker: Checker) -> None:
    """Runs the workload up to the first call that fails, if one does, and looks what is left."""
    driver, failed = None, None
    try:
        driver = Driver(disk, STORY.path, OPTIONS)
        for number, step in enumerate(STEPS):
            failed = number
            step(driver)
        failed = None
    except (OSError, LsmStateError) as error:
        if not is_the_fault(error, fault):
            raise AssertionError(f"{fault} in step {failed}: {error!r}") from error
    if fault.hit is None:
        return
    done = 0 if driver is None else len(STEPS) if failed is None else failed + 1
    committed = driver.story.publications[-1].epochs if driver else None
    allowed = [committed, *clean[done]]
    poisoned = fault.poisons and (failed is None or STEPS[failed] is not Driver.reopen)  # else there is no new handle
    try:
        if driver is not None:
            check_handle(driver, fault, poisoned)
        check_disk(checker, unsynced_lost(disk), committed, allowed)
        disk.fault = disk.fault_after = None
        check_disk(checker, disk.copy(), committed, allowed)
        if driver is not None and failed is not None and not poisoned:
            check_again(driver, fault, failed, clean)
    except Exception as error:
        raise AssertionError(f"{fault} in step {failed}: {error!r}") from error


def is_the_fault(error: Exception, fault: Fault) -> bool:
    """What failed in the background is raised by a later call: as itself, or as what it has done to the handle."""
    if isinstance(error, StorePoisonedError):
        return fault.poisons
    if isinstance(error, LsmStateError) and error.__cause__ is not None:
        return isinstance(error.__cause__, OSError) and error.__cause__.errno == fault.code  # said in words
    return isinstance(error, OSError) and error.errno == fault.code and fault.hit is not None


def check_handle(driver: Driver, fault: Fault, poisoned: bool) -> None:
    """What is committed can be read by the same handle; after a failed fsync nothing can be written."""
    rows_of(driver.store)
    if not fault.sticky or fault.code == errno.EROFS:
        for epoch, rows in driver.story.publications[-1].epochs.items():
            with driver.store.at_epoch(epoch) as view:
                assert rows_of(view) == rows
    if poisoned:
        with pytest.raises(StorePoisonedError):
            driver.store.append(0, batch(0, [number(77)]))
        with pytest.raises(StorePoisonedError):
            driver.store.prepare(99)


def check_disk(checker: Checker, image: SimFileSystem, committed: Epochs | None, allowed: list[Epochs | None]) -> None:
    """A new handle finds what was committed, or a newer complete epoch, and can go on."""
    found = checker.recover(image, STORY)
    assert found in allowed or (committed is None and found == {}), f"{found} is not one of {allowed}"


def check_again(driver: Driver, fault: Fault, failed: int, clean: list[list[Epochs]]) -> None:
    """The call that failed can be repeated by the same handle, and all that follows done."""
    for step in STEPS[failed:]:
        try:
            repeat(step, driver, SPILLS_MAX if fault.sticky else 0)
        except (FencedError, StorePoisonedError):
            assert is_in_doubt(fault)
            return
    assert driver.story.publications[-1].epochs == clean[-1][-1]
    assert driver.store.verify() == []


def repeat(step: Step, driver: Driver, failures_max: int) -> None:
    """Each spill that failed while nobody waited for it says so once."""
    for _ in range(failures_max):
        try:
            return step(driver)
        except OSError:
            continue
    return step(driver)


def is_in_doubt(fault: Fault) -> bool:
    """Whether it was publishing that failed, so that only a new handle can tell the outcome."""
    op, path = fault.hit or ("", "")
    return (op == "link" and "/head-" in path) or (op == "list_dir" and path.endswith("/manifest"))
