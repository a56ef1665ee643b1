"""Unaligned checkpoints: a slow input does not hold them up, and what was in flight is not lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from iopool import LocalFileSystem
from lsmstate.checkpoint import CheckpointBarrier, CheckpointManifest, Pipeline
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.checkpoint.runtime.inbox import Inbox
from lsmstate.errors import CheckpointError
from lsmstate.join import IntervalJoin
from tests.support.pipeline_job import REACH, SIDES, expected, pipeline, rows, written
from tests.support.pipeline_parts import Waiting

LEFT, RIGHT = rows(11, 1200), rows(12, 1200)
TAKEN = 3  # right batches that the slow join takes; many more wait
GIVEN = 400, 600  # left and right rows that the sources give before they wait: no more than an inbox holds
# Right batches that it may take once the barriers are in its inbox: the one at which it stands, and one that it takes
# before a millisecond has gone by. However slow the machine is, most of the fifteen are then left before the barrier.
GRANTED = 2


class Slow(IntervalJoin):
    """A join that takes right rows only as far as it may."""

    def __init__(self, may: threading.Semaphore) -> None:
        super().__init__(*SIDES, lower=-REACH / 3, upper=REACH, how="full")
        self._may = may

    def process_batch(self, side: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if side == 1:
            assert self._may.acquire(timeout=60)
        return super().process_batch(side, batch)


def slow_job(root: Path, may: threading.Semaphore, align: timedelta | None) -> tuple[Pipeline, list[Waiting]]:
    sources = {"left": Waiting(LEFT, GIVEN[0]), "right": Waiting(RIGHT, GIVEN[1])}
    job = pipeline(
        root,
        "full",
        LEFT,
        RIGHT,
        sources=lambda name, table: sources[name],
        interval_s=600,
        align_timeout=align,
    )
    job._graph.operators.clear()
    job._graph.sinks.clear()
    job.operator("join", lambda: Slow(may), inputs=["left", "right"])
    from lsmstate.checkpoint import FileSink

    job.sink("out", FileSink(root / "out"), input="join")
    return job, list(sources.values())


def manifest_of(root: Path) -> CheckpointManifest:
    (path,) = (root / "state").glob("*/checkpoints")
    found = ManifestStore(LocalFileSystem(), str(path)).latest()
    assert found is not None
    return found


def barriers_wait(inbox: Inbox) -> bool:
    """Whether a barrier lies in every queue, behind rows."""
    with inbox._changed:
        return all(any(isinstance(item, CheckpointBarrier) for item in queue) for queue in inbox._queues)


def interrupted(root: Path, align: timedelta | None) -> CheckpointManifest:
    """A checkpoint while the right input is far behind; then the job ends without another."""
    may = threading.Semaphore(TAKEN)
    job, sources = slow_job(root, may, align)
    job.start()
    assert all(source.waits.wait(30) for source in sources)  # all they give lies before the barrier
    driver = job._running()[1]
    driver.want_checkpoint()
    if align is None:  # it has to take everything that lies before the barrier
        may.release(1200)
    else:
        (join,) = (task for task in driver._tasks.values() if isinstance(task.operator, Slow))
        released = 0
        with driver.changed:
            while driver.epoch == 0:
                assert not driver.ended.is_set()
                if not driver.changed.wait(0.05) and released < GRANTED and barriers_wait(join.inbox):
                    may.release()
                    released += 1
    assert job.checkpoint(60) >= 1 if align is None else driver.epoch == 1
    driver.cancel()
    may.release(1200)
    job.wait()
    return manifest_of(root)


def test_a_slow_input_does_not_hold_up_a_checkpoint_and_recovery_replays_what_was_in_flight(tmp_path: Path) -> None:
    manifest = interrupted(tmp_path, timedelta(milliseconds=1))
    in_flight = manifest.inflight_data["join"]
    assert len(in_flight["right"].blobs) > 2
    assert manifest.source_offsets["right"].offsets["rows"] == str(GIVEN[1])
    pipeline(tmp_path, "full", LEFT, RIGHT).run()
    assert written(tmp_path / "out") == expected("full", LEFT, RIGHT)


def test_the_result_is_that_of_aligned_checkpoints(tmp_path: Path) -> None:
    aligned, unaligned = tmp_path / "aligned", tmp_path / "unaligned"
    for root, align in ((aligned, None), (unaligned, timedelta(milliseconds=1))):
        root.mkdir()
        manifest = interrupted(root, align)
        assert bool(manifest.inflight_data) == (align is not None)
        pipeline(root, "full", LEFT, RIGHT).run()
    assert written(aligned / "out") == written(unaligned / "out") == expected("full", LEFT, RIGHT)


def test_records_in_flight_survive_a_second_crash_before_they_were_processed(tmp_path: Path) -> None:
    interrupted(tmp_path, timedelta(milliseconds=1))
    held = threading.Semaphore(0)
    job, _ = slow_job(tmp_path, held, None)
    job.start()
    job._running()[1].cancel()
    held.release(5000)
    job.wait()
    pipeline(tmp_path, "full", LEFT, RIGHT).run()
    assert written(tmp_path / "out") == expected("full", LEFT, RIGHT)


def test_parallelism_cannot_change_while_records_are_in_flight(tmp_path: Path) -> None:
    interrupted(tmp_path, timedelta(milliseconds=1))
    with pytest.raises(CheckpointError, match="without records in flight"):
        pipeline(tmp_path, "full", LEFT, RIGHT, parallelism=2).run()
    pipeline(tmp_path, "full", LEFT, RIGHT).run()
    assert written(tmp_path / "out") == expected("full", LEFT, RIGHT)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_checkpoints_that_never_wait_give_the_same_result(parallelism: int, tmp_path: Path) -> None:
    no_wait = timedelta(microseconds=1)
    job = pipeline(tmp_path, "full", LEFT, RIGHT, parallelism=parallelism, interval_s=0.005, align_timeout=no_wait)
    job.run()
    assert written(tmp_path / "out") == expected("full", LEFT, RIGHT)
