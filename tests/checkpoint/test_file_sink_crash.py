"""The file sink under power cuts at every operation, and beside another that takes its place at every operation."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsmstate.checkpoint.connect import parquet_draft
from lsmstate.checkpoint.connect.file_place import Part, Place
from lsmstate.checkpoint.connect.file_sink import FileSink
from lsmstate.errors import FencedError, LsmStateError
from tests.conftest import Figures
from tests.support.crash import crash_images, crash_points
from tests.support.crash_check import unsynced_lost
from tests.support.simfs import Fault, SimFileSystem

JOB = "job/out"
IMAGES_PER_POINT = 24
SEED = 6
Allowed = list[tuple[int, list[int]]]  # an epoch that the catalog may have decided, and the rows up to it

_decoded: dict[bytes, list[int]] = {}


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def rows_on(fs: SimFileSystem) -> list[int]:
    """What a reader of the directory sees; every file that has a visible name must be whole."""
    found = []
    for path, data in fs.tree().items():
        if path.startswith("/out/part-") and data is not None:
            key = zlib.crc32(data).to_bytes(4) + data[-64:]
            if key not in _decoded:
                _decoded[key] = pq.read_table(pa.BufferReader(data)).column("n").to_pylist()
            found += _decoded[key]
    return sorted(found)


class Story:
    """Drives a sink, and keeps from which entry of the journal on which decisions of the catalog are possible."""

    def __init__(self) -> None:
        self.fs = SimFileSystem()
        self.sink = FileSink("/out", fs=self.fs)
        self.phases: list[tuple[int, Allowed]] = []
        self.acknowledged: list[tuple[int, list[int]]] = []
        self.rows: dict[int, list[int]] = {0: []}
        self.decided = 0
        self._waiting: list[int] = []
        self.allow(0)

    def allow(self, *epochs: int) -> None:
        self.phases.append((len(self.fs.journal), [(epoch, self.rows[epoch]) for epoch in epochs]))

    def allowed(self, at: int) -> Allowed:
        return [allowed for start, allowed in self.phases if start <= at][-1]

    def open(self) -> None:
        """Another process opens it; what was not decided is dropped."""
        self.allow(self.decided)
        self._waiting = []
        self.sink.open(JOB, self.decided)

    def write(self, *numbers: int) -> None:
        self._waiting += numbers
        self.sink.write(batch(*numbers))

    def pre_commit(self, epoch: int) -> None:
        self.sink.pre_commit(epoch)
        self.rows[epoch] = sorted(self.rows[self.decided] + self._waiting)
        self.allow(self.decided, epoch)  # the catalog is asked now

    def commit(self, epoch: int) -> None:
        self.phases.append((len(self.fs.journal) + 1, [(epoch, self.rows[epoch])]))  # it is decided before it begins
        self.sink.commit(epoch)
        self.decided, self._waiting = epoch, []
        self.allow(epoch)
        self.acknowledged.append((len(self.fs.journal), self.rows[epoch]))

    def abort(self, epoch: int) -> None:
        self.allow(self.decided)
        self.sink.abort(epoch)

    def rewind(self, epoch: int) -> None:
        """The job is restored at an earlier epoch."""
        self.decided = epoch
        self.open()


def simple() -> Story:
    story = Story()
    story.open()
    story.write(1, 2)
    story.pre_commit(1)
    story.write(3)
    story.commit(1)
    story._waiting = [3]
    story.pre_commit(2)
    story.commit(2)
    story.pre_commit(3)
    story.commit(3)
    return story


def with_aborts() -> Story:
    story = Story()
    story.open()
    story.write(1)
    story.pre_commit(1)
    story.abort(1)
    story.write(2)
    story.pre_commit(1)
    story.abort(1)
    story.pre_commit(2)
    story.commit(2)
    story.write(3)
    story.pre_commit(3)
    story.abort(3)
    story.write(4)
    story.pre_commit(4)
    story.commit(4)
    return story


def with_restarts() -> Story:
    story = Story()
    story.open()
    story.write(1)
    story.pre_commit(1)
    story.decided = 1  # the catalog has decided, and then the process dies
    story.open()
    story.write(2)
    story.pre_commit(2)
    story.open()  # dies before the decision
    story.write(22)
    story.pre_commit(2)
    story.commit(2)
    story.write(3)
    story.pre_commit(3)
    story.commit(3)
    story.rewind(1)
    story.write(222)
    story.pre_commit(2)
    story.commit(2)
    return story


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


@pytest.mark.parametrize("decided", [False, True])
def test_sink_that_wakes_up_after_another_has_taken_its_place_publishes_nothing(decided: bool) -> None:
    """The other one opens, commits and goes on in the middle of each operation of the first."""
    first, last = _span(decided)
    assert last - first > 3
    for at in range(first, last):
        fs = SimFileSystem()
        rows: list[int] = []
        fs.fault = _taken_over(fs, at, decided, rows)
        sink = FileSink("/out", fs=fs)
        sink.open(JOB, None)
        sink.write(batch(1))
        fenced = 0
        for step in (lambda: sink.pre_commit(1), lambda: sink.commit(1)):  # noqa: B023
            try:
                step()
            except FencedError:
                fenced += 1
        assert fenced or decided, at
        assert rows_on(fs) == rows, at
        third = FileSink("/out", fs=fs.spawn())
        third.open(JOB, 2)
        assert rows_on(fs) == rows, at
        for call in (lambda: sink.pre_commit(9), lambda: sink.commit(1)):  # noqa: B023
            with pytest.raises(FencedError):
                call()


def _taken_over(fs: SimFileSystem, at: int, decided: bool, rows: list[int]) -> Fault:
    """Another sink lives its whole life before an operation of the first one."""

    def fault(op: str, path: str, index: int) -> None:
        if index == at:
            rows.extend(_other(fs.spawn(), 1 if decided else 0))

    return fault


def _span(decided: bool) -> tuple[int, int]:
    """The operations of the first sink during which the other may come."""
    fs = SimFileSystem()
    sink = FileSink("/out", fs=fs)
    sink.open(JOB, None)
    sink.write(batch(1))
    before = fs.ops
    sink.pre_commit(1)
    between = fs.ops
    sink.commit(1)
    return (between, fs.ops) if decided else (before, between)


def _other(fs: Any, committed: int) -> list[int]:
    """A whole life of another sink; gives the rows that are then visible."""
    sink = FileSink("/out", fs=fs)
    sink.open(JOB, committed)
    before = [1] if committed else []
    assert rows_on(fs) == before
    for epoch in range(committed + 1, 3):
        if epoch == 2:  # epoch 1 may have no rows, so that only its number is there
            sink.write(batch(20))
        sink.pre_commit(epoch)
        sink.commit(epoch)
    return [*before, 20]
