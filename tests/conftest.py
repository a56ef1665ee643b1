"""What all tests share: figures that a run reports at its end, one Spark session a process, and where files go."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.support.figures import lines_of, write_figures
from tests.support.sizes import is_default

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Figures:
    """Numbers of a run, summed over all tests and workers, printed when it ends."""

    def __init__(self) -> None:
        self._sums: dict[str, list[int]] = {}

    def add(self, name: str, *numbers: int) -> None:
        """Adds to a figure. A name with braces says where its numbers stand: "bugs caught: {} of {}"."""
        before = self._sums.get(name, [0] * len(numbers))
        self._sums[name] = [a + b for a, b in zip(before, numbers, strict=True)]

    def merge(self, other: dict[str, list[int]]) -> None:
        """Adds the figures of a worker."""
        for name, numbers in other.items():
            self.add(name, *numbers)

    def plain(self) -> dict[str, list[int]]:
        """As xdist can send them."""
        return self._sums

    def lines(self) -> Iterator[str]:
        """One line a figure."""
        return lines_of(self._sums)


settings.register_profile("patient", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("patient")
_FIGURES = pytest.StashKey[Figures]()
# Temporary files lie in memory where that can be: most of the time that the tests took was spent waiting for fsync.
# What a power cut leaves is asked of a simulated disk, which is stricter; a kill leaves the same on both. The full run
# is on the disk, and so is every run with a PYTEST_DEBUG_TEMPROOT or a --basetemp of its own.
_MEMORY = "/dev/shm"
_ROOM_BYTES = 4 << 30


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Figures:
    """Where tests add to the figures of the run."""
    return request.config.stash[_FIGURES]


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A temporary directory on the disk, with real fsyncs: for processes that are killed."""
    with tempfile.TemporaryDirectory(prefix="lsmstate-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this process, with two cores and retries. A process has but one: nothing else may stop it."""
    from tests.support.spark_session import FEW_PROCESSES, make_session  # here, because most tests need no pyspark

    session = make_session(settings=FEW_PROCESSES)
    yield session
    session.stop()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = Figures()
    if is_default() and _has_room(_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First the soak, which takes half an hour of the full run whatever runs beside it; then tests with Spark: one
    worker takes them, in one warm JVM, while others take all the rest from it."""

    def turn(item: pytest.Item) -> int:
        if item.path.name == "test_mvcc_stress.py":
            return 0
        return 1 if "spark" in getattr(item, "fixturenames", ()) or "spark" in item.keywords else 2

    items.sort(key=turn)


def _has_room(path: str) -> bool:
    """Whether the files of all tests fit in there."""
    return os.access(path, os.W_OK) and shutil.disk_usage(path).free >= _ROOM_BYTES


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["figures"] = session.config.stash[_FIGURES].plain()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_FIGURES].merge(getattr(node, "workeroutput", {}).get("figures", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    figures, stats = config.stash[_FIGURES], terminalreporter.stats
    counts = {outcome: len(stats.get(outcome, [])) for outcome in ("passed", "failed", "error", "skipped")}
    write_figures(figures.plain(), os.environ.get("LSMSTATE_TEST_NAME") or "tests", tests=counts)
    lines = list(figures.lines())
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
