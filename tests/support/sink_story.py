"""Lives of a file sink on a simulated disk, and at which point of the journal which rows may be visible."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from lsmstate.checkpoint.connect.file_sink import FileSink
from tests.support.simfs import SimFileSystem

JOB = "job/out"
Allowed = list[tuple[int, list[int]]]  # an epoch that the catalog may have decided, and the rows up to it
_decoded: dict[bytes, list[int]] = {}


def batch(*numbers: int) -> pa.RecordBatch:
    """Rows of one column."""
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
    """Three epochs, the last without rows."""
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
    """Epochs that are aborted, with rows that go with the next one."""
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
    """Processes that die before and after the decision, and a restore."""
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
