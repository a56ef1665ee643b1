"""The file sink under power cuts at every operation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from lsmstate.checkpoint.connect import parquet_draft
from lsmstate.checkpoint.connect.file_place import Part, Place
from lsmstate.checkpoint.connect.file_sink import FileSink
from lsmstate.errors import LsmStateError
from tests.conftest import Figures
from tests.support.crash import crash_images, crash_points
from tests.support.crash_check import unsynced_lost
from tests.support.simfs import SimFileSystem
from tests.support.sink_story import JOB, Story, batch, rows_on, simple, with_aborts, with_restarts

IMAGES_PER_POINT = 24
SEED = 6


@pytest.mark.parametrize("workload", [simple, with_aborts, with_restarts])
def test_crash_at_every_operation_leaves_the_rows_of_committed_epochs_once_it_is_opened(
    workload: Callable[[], Story], figures: Figures
) -> None:
    figures.add("disks that file sinks recovered from", crash_everywhere(workload()))


def crash_everywhere(story: Story) -> int:
    """Recovers every disk that a crash may leave; gives how many there were."""
    assert rows_on(story.fs) == story.rows[story.decided]
    rng, done = random.Random(SEED), set()
    for at in crash_points(story.fs):
        for image in crash_images(story.fs, at, rng, IMAGES_PER_POINT):
            for epoch, rows in story.allowed(at):
                key = (image.digest(), epoch)
                if key not in done:
                    done.add(key)
                    recover(image.copy(), epoch, rows, at)
    return len(done)


def recover(image: SimFileSystem, epoch: int, rows: list[int], at: int) -> None:
    sink = FileSink("/out", fs=image)
    sink.open(JOB, epoch)
    assert rows_on(image) == rows, f"seed {SEED}, after {at} entries, opened at epoch {epoch}"
    assert rows_on(unsynced_lost(image)) == rows, f"seed {SEED}, after {at} entries: not durable"
    sink.write(batch(99))
    sink.pre_commit(epoch + 1)
    assert rows_on(image) == rows
    sink.commit(epoch + 1)
    assert rows_on(unsynced_lost(image)) == sorted([*rows, 99]), f"seed {SEED}, after {at} entries: going on"


def no_sync_of_the_file(self: Any) -> None:
    self.flush()
    self.closed = True
    self._file.close()


def no_sync_after_publishing(self: Place, parts: Iterable[Part]) -> None:
    for part in parts:
        self._link(self.staged_path(part), f"{self.path}/{part.visible}")


def no_settling(self: Place, generation: int, committed: int) -> None:
    self.publish([part for part in self._staged() if part.epoch <= committed])


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (parquet_draft._Stream, "finish", no_sync_of_the_file),
        (Place, "sync_staged", lambda self: None),
        (Place, "publish", no_sync_after_publishing),
        (Place, "settle", no_settling),
        (Place, "_undo", lambda self, generation, committed: None),
    ],
)
def test_planted_bug_is_caught(owner: Any, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, bug)
    caught = 0
    for workload in (simple, with_restarts):
        try:
            crash_everywhere(workload())
        except (AssertionError, LsmStateError, OSError, pa.ArrowException):
            caught += 1
    assert caught


def test_acknowledged_commit_is_visible_without_recovery() -> None:
    story = simple()
    rng = random.Random(SEED)
    for start, rows in story.acknowledged:
        for image in crash_images(story.fs, start, rng, IMAGES_PER_POINT):
            assert set(rows) <= set(rows_on(image)), f"seed {SEED}, after {start} entries"


def test_crash_during_recovery_changes_nothing() -> None:
    story = with_restarts()
    rng = random.Random(SEED)
    points = [start for start, allowed in story.phases if len(allowed) == 2]
    for at in points:
        for epoch, rows in story.allowed(at):
            first = next(iter(crash_images(story.fs, at, rng, 2)))
            FileSink("/out", fs=first).open(JOB, epoch)
            for again in crash_points(first):
                for image in crash_images(first, again, rng, 8):
                    recover(image, epoch, rows, at)
