"""With a write-ahead log a crash after any file operation loses no acknowledged write, and leaves none half."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from lsmstate import LsmStateError, StorePoisonedError
from tests.conftest import Figures
from tests.support.crash_check import NO_ROWS, Broken, unsynced_lost
from tests.support.crash_kill import killed
from tests.support.crash_memo import decoded_once
from tests.support.crash_workload import batch, rows_of
from tests.support.simfs import SimFileSystem
from tests.support.sizes import is_default, size
from tests.support.wal_bugs import BUGS, Bug
from tests.support.wal_story import (
    Held,
    Story,
    check_held,
    check_image,
    check_kills,
    images,
    number,
    open_wal,
)
from tests.support.wal_workloads import WORKLOADS, told

IMAGES_A_POINT = size("wal_images")
GO_ON_EVERY = 2 * size("wal_every") if is_default() else 1
FAIL_EVERY = size("wal_every")

each_workload = pytest.mark.parametrize("name", WORKLOADS)


@pytest.fixture(autouse=True)
def decoders() -> Iterator[None]:
    with decoded_once():
        yield


@each_workload
def test_crash_loses_no_acknowledged_write(name: str, figures: Figures) -> None:
    story, seen = told(name), set()
    for at, image in images(story, name, IMAGES_A_POINT):
        key = (image.digest(), *(id(held) for held in story.allowed(at)))
        if key not in seen:
            seen.add(key)
            durability = "epoch" if len(seen) % 3 == 0 else "wal"
            check_image(story, image, at, durability, go_on=len(seen) % GO_ON_EVERY == 0)
    figures.add("crash images with a write-ahead log", len(seen))
    assert len(seen) > len(story.disk.journal)


@each_workload
def test_process_after_a_killed_one_acknowledges_nothing_that_a_power_cut_loses(name: str) -> None:
    check_kills(told(name), size("wal_every"))


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done all the same"])
@each_workload
def test_error_of_any_operation_loses_no_acknowledged_write(name: str, after: bool, figures: Figures) -> None:
    clean = told(name)
    index = 0
    while fail_once(name, clean, index, after):
        index += FAIL_EVERY
    figures.add("errors survived with a write-ahead log", index // FAIL_EVERY)
    assert index > 100


def fail_once(name: str, clean: Story, index: int, after: bool) -> bool:
    """Runs a workload with one operation failing, and looks what a power cut leaves, or a new handle finds."""
    hit: list[str] = []

    def fault(op: str, path: str, at: int) -> None:
        if at == index:
            hit.append(f"{op} {path}")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    disk = SimFileSystem(fault_after=fault) if after else SimFileSystem(fault=fault)
    workload, memtable_bytes = WORKLOADS[name]
    story, raised = None, None
    try:
        story = Story(disk, memtable_bytes=memtable_bytes)
        workload(story)
    except (OSError, LsmStateError) as error:
        raised = error
    if not hit:
        assert raised is None
        return False
    disk.fault = disk.fault_after = None
    done = 0 if story is None else len(story.calls)
    allowed = [Held(NO_ROWS, {}) if story is None else story.held()]
    if raised is not None:
        allowed.append(clean.calls[done].held)  # the call that failed may have been done all the same
    try:
        assert raised is None or isinstance(raised, OSError | StorePoisonedError), f"raised {raised!r}"
        check_held(unsynced_lost(disk), allowed, go_on=index % 4 == 0)
        check_held(disk.copy(), allowed, go_on=index % 4 == 1)
    except Exception as error:
        raise AssertionError(f"operation {index}, {hit[0]}: {error!r}") from error
    return True


def test_write_that_failed_for_want_of_space_can_be_repeated() -> None:
    for index in range(40):
        disk = SimFileSystem()
        store = open_wal(disk, attempt="w1")
        store.append(0, batch(0, [number(1)]))
        first = disk.ops

        def fault(op: str, path: str, at: int, failing: int = first + index) -> None:
            if at == failing and op in ("write", "create"):
                raise OSError(errno.ENOSPC, "full", path)

        disk.fault = fault
        rows = [number(1)]
        for n in range(2, 6):
            for _ in range(2):
                try:
                    store.append(0, batch(0, [number(n)]))
                except OSError:
                    continue
                break
            rows.append(number(n))
            if n == 3:
                try:
                    store.prepare(1)
                except OSError:
                    store.prepare(1)
                store.commit(1)
        disk.fault = None
        assert rows_of(store)[0] == tuple(rows)
        assert rows_of(open_wal(unsynced_lost(disk)))[0] == tuple(rows)


def test_handle_whose_fsync_failed_writes_no_more_and_the_next_one_has_all_that_was_acknowledged() -> None:
    disk = SimFileSystem()
    store = open_wal(disk)
    store.append(0, batch(0, [number(1)]))

    def fault(op: str, path: str, at: int) -> None:
        if op == "sync" and "/wal/" in path:
            raise OSError(errno.EIO, "gone", path)

    disk.fault = fault
    with pytest.raises(OSError, match="gone"):
        store.append(0, batch(0, [number(2)]))
    disk.fault = None
    for act in (
        lambda: store.append(0, batch(0, [number(3)])),
        lambda: store.prepare(1),
        lambda: store.remove(0, 0, 9),
    ):
        with pytest.raises(StorePoisonedError):
            act()
    store.close()
    after = open_wal(disk)
    assert rows_of(after)[0] in ((number(1),), (number(1), number(2)))
    seen = rows_of(after)[0]
    after.append(0, batch(0, [number(4)]))
    assert rows_of(open_wal(unsynced_lost(disk)))[0] == (*seen, number(4))  # though the file was poisoned


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS.keys())
def test_seeded_bug_is_caught(bug: Bug, figures: Figures) -> None:
    figures.add("seeded bugs of the log caught: {} of {}", 0, 1)
    with bug.patch(), pytest.raises((Broken, LsmStateError)):
        show(bug)
    figures.add("seeded bugs of the log caught: {} of {}", 1, 0)


def show(bug: Bug) -> None:
    """Runs the workload of a bug and cuts the power at every point, with and without another process before that."""
    story = told(bug.workload, bug.seen)
    for at in range(len(story.disk.journal), 0, -1):  # the end tells most
        check_image(story, unsynced_lost(killed(story.disk, at)), at, go_on=False)
        check_image(story, killed(story.disk, at), at)
