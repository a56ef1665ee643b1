"""A crash after every operation leaves the last acknowledged epoch, or a newer complete one, and nothing between.

The default run recovers at least `IMAGES` different disks. Every one of them is opened, read at every retained epoch,
committed to once more, and read again after another power cut. In larger runs (tests/support/sizes.py)
one in `GO_ON_EVERY` is committed to, and crashes during recovery are tried at every point.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.conftest import Figures
from tests.support import crash_cases_compaction, seeded_bugs_compaction  # noqa: F401  they add to the dicts below
from tests.support.crash import crash_images, crash_points
from tests.support.crash_cases import CASES, Case, few_runs
from tests.support.crash_check import Broken, Checker
from tests.support.crash_kill import check_kill
from tests.support.crash_memo import decoded_once, encoded_once
from tests.support.seeded_bugs import BUGS, Bug
from tests.support.simfs import SimFileSystem
from tests.support.sizes import size

IMAGES = size("crash_images")
IMAGES_EACH = -(-IMAGES // len(CASES))
GO_ON_EVERY = size("crash_go_on_every")
TURNS_MAX = 60
RECOVERED_EVERY = size("recovery_every")  # points whose recovery is crashed in turn
RECOVERY_IMAGES = size("recovery_images")  # a point of the recovery, at most
SEEDED_IMAGES = 40  # a point, at most, to find a seeded bug with

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@pytest.fixture(autouse=True)
def decoders() -> Iterator[None]:
    with decoded_once(), encoded_once(), few_runs():
        yield


@each_case
def test_crash_leaves_last_acknowledged_epoch_or_a_newer_complete_one(case: Case, figures: Figures) -> None:
    driver = case.run()
    checker = Checker(driver.stories, case.options, go_on_every=GO_ON_EVERY)
    points = crash_points(driver.disk)
    turns = 0
    for at, image in images(driver.disk, case.name):
        turns += at == points[0]
        if turns > 1 and checker.images >= IMAGES_EACH:  # every point has had its turn
            break
        checker.check(image, at)
    print(f"{checker.images} distinct images over {len(points)} points")
    figures.add("crash images: {} distinct over {} points", checker.images, len(points))
    assert checker.images >= IMAGES_EACH


@each_case
def test_crash_during_recovery_changes_nothing(case: Case, figures: Figures) -> None:
    driver = case.run()
    checker = Checker(driver.stories, case.options)
    rng = random.Random(case.name)
    for at in crash_points(driver.disk)[::RECOVERED_EVERY]:
        for image in crash_images(driver.disk, at, rng, 2):
            checker.check_recovery(image, rng, RECOVERY_IMAGES)
    figures.add("crash images during recovery: {} distinct", checker.images)


@each_case
def test_process_after_a_killed_one_acknowledges_nothing_that_a_power_cut_loses(case: Case, figures: Figures) -> None:
    driver = case.run()
    checker = Checker(driver.stories, case.options)
    for at in crash_points(driver.disk):
        check_kill(checker, driver.disk, at)
    figures.add("kills followed by a power cut", len(crash_points(driver.disk)))


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS.keys())
def test_seeded_bug_is_caught(bug: Bug, figures: Figures) -> None:
    case = CASES[bug.case]
    figures.add("seeded bugs caught: {} of {}", 0, 1)
    with bug.patch():
        driver = case.run(bug.seen)
        with pytest.raises(Broken):
            check_images(driver.disk, Checker(driver.stories, case.options), random.Random(case.name))
    figures.add("seeded bugs caught: {} of {}", 1, 0)


def check_images(fs: SimFileSystem, checker: Checker, rng: random.Random) -> None:
    for at in crash_points(fs):
        for image in crash_images(fs, at, rng, SEEDED_IMAGES):
            checker.check(image, at)


def images(fs: SimFileSystem, seed: str) -> Iterator[tuple[int, SimFileSystem]]:
    """About `IMAGES_EACH` images, every point among them; then, should some have been alike, others."""
    limit = max(2, IMAGES_EACH // unsynced_points(fs))
    for turn in range(TURNS_MAX):
        rng = random.Random(f"{seed}/{turn}")
        for at in crash_points(fs):
            for image in crash_images(fs, at, rng, limit if turn == 0 else max(4, limit // 2)):
                yield at, image


def unsynced_points(fs: SimFileSystem) -> int:
    """The points where a file is not synced: they have as many images as one likes, others a handful."""
    unsettled = (fs.point(at).unsettled.values() for at in crash_points(fs))
    return sum(any(state.size > state.synced for state in states) for states in unsettled)
