"""Pipelines: what comes out, stops and goes on, whatever is changed or fails on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsmstate.checkpoint import (
    Catalog,
    FileSink,
    Operator,
    OperatorContext,
    TableSource,
)
from lsmstate.checkpoint.coordinator.events import Event
from lsmstate.checkpoint.coordinator.phases import PhaseTimeouts
from lsmstate.errors import CheckpointError, FencedError, TooManyFailures
from tests.support.pipeline_job import SCHEMA, expected, numbers, pipeline, plain, rows, written
from tests.support.pipeline_parts import Counting, Faulty, Passing, Waiting

LEFT, RIGHT = rows(1, 1200), rows(2, 1200)


@pytest.mark.parametrize("kind", ["inner", "left", "full", "instant"])
def test_a_pipeline_gives_the_batch_join_of_its_sources(kind: str, tmp_path: Path) -> None:
    epoch = pipeline(tmp_path, kind, LEFT, RIGHT).run()
    assert epoch >= 1
    if kind == "inner":
        both = [row for row in expected("left", LEFT, RIGHT) if row[4] is not None]
        assert written(tmp_path / "out") == both
    else:
        assert written(tmp_path / "out") == expected(kind, LEFT, RIGHT)


def test_a_job_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    source = Waiting(LEFT, 400)
    job = pipeline(tmp_path, "full", LEFT, RIGHT, sources=lambda name, t: source if name == "left" else Waiting(t, 600))
    job.start()
    assert source.waits.wait(30)
    stopped = job.stop()
    assert 0 < len(written(tmp_path / "out")) < len(expected("full", LEFT, RIGHT))
    assert pipeline(tmp_path, "full", LEFT, RIGHT).run() > stopped
    assert written(tmp_path / "out") == expected("full", LEFT, RIGHT)


def test_what_was_not_in_a_checkpoint_comes_again(tmp_path: Path) -> None:
    source = Waiting(LEFT, 400)
    job = plain(tmp_path, source)
    job.start()
    assert source.waits.wait(30)
    assert job.checkpoint(30) == 1
    source.allow(400)
    assert source.waits.wait(30)
    job.stop(savepoint=False)
    assert numbers(tmp_path / "out") == list(range(400))
    plain(tmp_path, TableSource(LEFT)).run()
    assert numbers(tmp_path / "out") == list(range(1200))


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (4, 1)])
@pytest.mark.parametrize("kind", ["full", "instant"])
def test_a_job_goes_on_at_another_parallelism(kind: str, before: int, after: int, tmp_path: Path) -> None:
    waiting = {"left": Waiting(LEFT, 600), "right": Waiting(RIGHT, 500)}
    job = pipeline(tmp_path, kind, LEFT, RIGHT, sources=lambda name, table: waiting[name], parallelism=before)
    job.start()
    assert all(source.waits.wait(30) for source in waiting.values())
    job.stop()
    pipeline(tmp_path, kind, LEFT, RIGHT, parallelism=after).run()
    assert written(tmp_path / "out") == expected(kind, LEFT, RIGHT)


def test_marks_survive_another_parallelism(tmp_path: Path) -> None:
    """A left row that has met somebody before does not come out alone after."""
    test_a_job_goes_on_at_another_parallelism("left", 2, 3, tmp_path)


def test_an_operator_keeps_bytes_in_the_manifest(tmp_path: Path) -> None:
    source = Waiting(LEFT, 400)
    job = plain(tmp_path, source, Counting)
    job.start()
    assert source.waits.wait(30)
    job.stop()
    plain(tmp_path, TableSource(LEFT), Counting).run()
    table = pq.read_table(tmp_path / "out").sort_by("n")
    assert table.column("place").to_pylist() == list(range(1200))


def test_the_hook_comes_before_the_commit_and_events_are_told(tmp_path: Path) -> None:
    events: list[Event] = []
    made: list[Passing] = []

    def make() -> Operator:
        made.append(Passing())
        return made[-1]

    plain(tmp_path, TableSource(LEFT), make, on_event=events.append).run()
    ran = next(operator for operator in made if operator.seen)
    assert ran.seen == ["start at 0", "hook 1", "commit 1"]
    kinds = [event.kind for event in events if event.operator in (None, "middle")]
    wanted = ["alignment_started", "checkpointing_started", "operator_finished", "sync_finished", "commit_finished"]
    assert [kind for kind in kinds if kind in wanted] == wanted
    assert all(event.at_ms > 0 for event in events)


def test_a_sink_that_cannot_pre_commit_declines_and_the_next_attempt_has_its_rows(tmp_path: Path) -> None:
    sink = Faulty(tmp_path / "out", lambda call, n: OSError(28, "full") if call == "pre_commit" and n == 1 else None)
    made: list[Passing] = []

    def make() -> Operator:
        made.append(Passing())
        return made[-1]

    plain(tmp_path, TableSource(LEFT), make, sink=sink).run()
    assert numbers(tmp_path / "out") == list(range(1200))
    ran = next(operator for operator in made if operator.seen)
    assert ran.seen[1:] == ["hook 1", "abort 1", "hook 1", "commit 1"]
    with Catalog.open(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        assert [(row.checkpoint_id, row.epoch) for row in catalog.checkpoints("plain")] == [(2, 1)]


def test_a_job_whose_checkpoints_fail_too_often_ends(tmp_path: Path) -> None:
    sink = Faulty(tmp_path / "out", lambda call, n: OSError(28, "full") if call == "pre_commit" else None)
    job = plain(tmp_path, TableSource(LEFT), sink=sink, failures_max=2)
    with pytest.raises(TooManyFailures):
        job.run()
    assert numbers(tmp_path / "out") == []
    plain(tmp_path, TableSource(LEFT)).run()
    assert numbers(tmp_path / "out") == list(range(1200))


def test_a_sink_that_could_not_commit_is_committed_by_the_next_run(tmp_path: Path) -> None:
    sink = Faulty(tmp_path / "out", lambda call, n: OSError(5, "gone") if call == "commit" else None)
    with pytest.raises(CheckpointError, match="could not commit epoch 1"):
        plain(tmp_path, TableSource(LEFT), sink=sink).run()
    assert numbers(tmp_path / "out") == []
    again = plain(tmp_path, TableSource(LEFT))
    again.start()
    assert numbers(tmp_path / "out") == list(range(1200)), "the catalog has the epoch: it is rolled forward"
    again.wait()
    assert numbers(tmp_path / "out") == list(range(1200))


def test_an_operator_that_fails_ends_the_job_and_loses_nothing(tmp_path: Path) -> None:
    def fail(batch: pa.RecordBatch) -> None:
        if batch.column("n")[0].as_py() >= 600:
            raise RuntimeError("out of luck")

    with pytest.raises(CheckpointError, match=r"middle failed.*out of luck"):
        plain(tmp_path, TableSource(LEFT, batch_rows=40), lambda: Passing(fail)).run()
    plain(tmp_path, TableSource(LEFT), Passing).run()
    assert numbers(tmp_path / "out") == list(range(1200))


def test_an_operator_that_hangs_cannot_hang_a_checkpoint(tmp_path: Path) -> None:
    source = Waiting(LEFT, 1200, batch_rows=1200)

    def hang(batch: pa.RecordBatch) -> None:
        assert source.go_on.wait(60)

    events: list[Event] = []
    short = PhaseTimeouts(align_s=0.05)
    job = plain(tmp_path, source, lambda: Passing(hang), timeouts=short, on_event=events.append, failures_max=50)
    job.start()
    assert source.waits.wait(30)
    job._running()[1].want_checkpoint()
    while not any(event.kind == "failed" for event in events):
        assert not job._running()[1].ended.wait(0.01)
    source.go_on.set()
    job.wait()
    assert numbers(tmp_path / "out") == list(range(1200))
    assert any("no report of 'middle'" in event.detail for event in events)


def test_a_driver_that_was_replaced_is_fenced_and_mixes_nothing(tmp_path: Path) -> None:
    source = Waiting(LEFT, 400)
    old = pipeline(tmp_path, "full", LEFT, RIGHT, sources=lambda name, t: source if name == "left" else TableSource(t))
    old.start()
    assert source.waits.wait(30)
    assert pipeline(tmp_path, "full", LEFT, RIGHT).run() >= 1
    source.go_on.set()
    with pytest.raises(FencedError):
        old.wait(60)
    assert written(tmp_path / "out") == expected("full", LEFT, RIGHT)


def test_every_field_that_applies_is_written(tmp_path: Path) -> None:
    pipeline(tmp_path, "left", LEFT, RIGHT).run()
    from iopool import LocalFileSystem
    from lsmstate.checkpoint.manifest.store import ManifestStore

    (path,) = (tmp_path / "state").glob("*/checkpoints")
    manifest = ManifestStore(LocalFileSystem(), str(path)).latest()
    assert manifest is not None
    assert manifest.validate() == []
    assert manifest.source_names == ("left", "right")
    assert manifest.sink_names == ("out",)
    assert {name: status.state for name, status in manifest.sink_commit_statuses.items()} == {"out": "committed"}
    assert manifest.sink_epochs == {"out": manifest.epoch}
    assert {name: told.offsets for name, told in manifest.source_offsets.items()} == {
        "left": {"rows": "1200"},
        "right": {"rows": "1200"},
    }
    assert manifest.watermark == min(manifest.source_watermarks.values())
    assert set(manifest.operator_states) == {"join", "out"}
    assert manifest.pipeline_hash is not None
    assert manifest.incarnation == 1


def test_a_barrier_is_not_held_up_by_back_pressure(tmp_path: Path) -> None:
    """A source whose queue is full still gets its barrier in: nothing of the rows that wait is in the checkpoint."""
    source = Waiting(LEFT, 1200, batch_rows=10)
    held = source.go_on

    def hold(batch: pa.RecordBatch) -> None:
        assert held.wait(60)

    job = plain(tmp_path, source, lambda: Passing(hold))
    job.start()
    driver = job._running()[1]
    driver.want_checkpoint()
    while driver._coordinator.current_id is None:
        assert not driver.ended.wait(0.01)
    assert "rows" in driver._coordinator.snapshots, "the source has answered"
    held.set()
    job.wait()
    assert numbers(tmp_path / "out") == list(range(1200))


def test_operators_are_handed_directory_memory_pool_and_epoch(tmp_path: Path) -> None:
    contexts: list[OperatorContext] = []

    class Looking(Passing):
        def on_start(self, context: OperatorContext) -> None:
            contexts.append(context)

    for _ in range(2):
        job = plain(tmp_path, TableSource(LEFT), Looking, memory_bytes=64 << 20)
        job.operator("other", Looking, inputs=["rows"]).sink("out2", FileSink(tmp_path / "out2"), input="other")
        job.run()
    first, other, again, _ = contexts
    assert first.state_dir != other.state_dir, "each operator has a directory of its own"
    assert again.state_dir == first.state_dir
    assert first.memory is other.memory is not None
    assert first.pool is other.pool is not None
    assert [context.safe_epoch for context in contexts] == [0, 0, 1, 1]


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_times_of_any_unit_drive_the_watermark(unit: str, tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array([1, 2, 3], pa.timestamp(unit)), "n": [1, 2, 3]})
    marks: list[int] = []

    class Watching(Passing):
        def process_watermark(self, watermark: int, number: int, /) -> Iterator[pa.RecordBatch]:
            marks.append(watermark)
            return iter(())

    plain(tmp_path, TableSource(table), Watching).run()
    assert marks[0] == {"s": 3_000_000, "ms": 3_000, "ns": 0}[unit] - 1


def test_all_columns_of_the_rows_come_through(tmp_path: Path) -> None:
    plain(tmp_path, TableSource(LEFT)).run()
    table = pq.read_table(tmp_path / "out").sort_by("n")
    assert table.select(SCHEMA.names).cast(SCHEMA) == LEFT
