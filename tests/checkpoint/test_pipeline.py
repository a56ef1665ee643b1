"""Pipelines: what comes out, stops and goes on, whatever is changed or fails on the way."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsmstate.checkpoint import Catalog, CheckpointBarrier, FileSink, Operator, Pipeline, TableSource
from lsmstate.checkpoint.events import Event
from lsmstate.checkpoint.phases import PhaseTimeouts
from lsmstate.errors import CheckpointError, FencedError, LsmStateError, TooManyFailures
from tests.support.pipeline_job import SCHEMA, expected, join_of, pipeline, rows, written
from tests.support.pipeline_parts import Counting, Faulty, Passing, Waiting

LEFT, RIGHT = rows(1, 1200), rows(2, 1200)


def plain(root: Path, source: Any, operator: Any = None, **more: Any) -> Pipeline:
    """A pipeline of one source, maybe an operator, and a sink."""
    more.setdefault("checkpoint_interval", timedelta(seconds=60))
    sink = more.pop("sink", None) or FileSink(root / "out")
    job = Pipeline("plain", catalog=f"sqlite:///{root}/catalog.db", state=root / "state", **more)
    job.source("rows", source, time="ts")
    if operator is not None:
        job.operator("middle", operator, inputs=["rows"])
    return job.sink("out", sink, input="rows" if operator is None else "middle")


def numbers(out: Path) -> list[int]:
    return sorted(pq.read_table(out).column("n").to_pylist()) if any(out.glob("part-*")) else []


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
    assert made[-1].seen[1:] == ["hook 1", "abort 1", "hook 1", "commit 1"]
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
    job._running().want_checkpoint()
    while not any(event.kind == "failed" for event in events):
        assert not job._running().ended.wait(0.01)
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


def test_dropping_and_making_a_job_again_never_finds_the_old_state(tmp_path: Path) -> None:
    plain(tmp_path, TableSource(LEFT)).run()
    with Catalog.open(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.drop("plain")
    with pytest.raises(LsmStateError, match="empty directory"):
        plain(tmp_path, TableSource(LEFT)).run()
    plain(tmp_path, TableSource(LEFT), sink=FileSink(tmp_path / "other")).run()
    assert numbers(tmp_path / "other") == list(range(1200))


def test_a_changed_pipeline_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain(tmp_path, TableSource(LEFT)).run()
    changed = plain(tmp_path, TableSource(LEFT), Passing)
    with caplog.at_level(logging.WARNING, "lsmstate.checkpoint"):
        changed.run()
    assert any("pipeline" in warning for warning in changed.warnings)
    assert any("pipeline" in record.getMessage() for record in caplog.records)


def test_a_new_source_without_offsets_is_refused(tmp_path: Path) -> None:
    plain(tmp_path, TableSource(LEFT)).run()
    job = plain(tmp_path, TableSource(LEFT))
    job.source("more", TableSource(RIGHT)).sink("out2", FileSink(tmp_path / "out2"), input="more")
    with pytest.raises(CheckpointError, match="knows no offsets of more"):
        job.run()


def test_a_damaged_checkpoint_is_no_fresh_start(tmp_path: Path) -> None:
    plain(tmp_path, TableSource(LEFT)).run()
    (manifest,) = (tmp_path / "state").glob("*/checkpoints/*.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"epoch": 1', b'"epoch": 2'))
    with pytest.raises(CheckpointError, match="stands at epoch 1"):
        plain(tmp_path, TableSource(LEFT)).run()
    manifest.unlink()
    with pytest.raises(CheckpointError, match="stands at epoch 1"):
        plain(tmp_path, TableSource(LEFT)).run()


def test_every_field_that_applies_is_written(tmp_path: Path) -> None:
    pipeline(tmp_path, "left", LEFT, RIGHT).run()
    from iopool import LocalFileSystem
    from lsmstate.checkpoint.manifest_store import ManifestStore

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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda job: job.source("left", TableSource(LEFT)), "two parts"),
        (lambda job: job.source("No Name", TableSource(LEFT)), "small letters"),
        (lambda job: job.source("more", TableSource(LEFT), time="when"), "no column 'when'"),
        (lambda job: job.source("more", TableSource(LEFT), delay=timedelta(seconds=-1)), "at least zero"),
        (lambda job: job.operator("more", join_of("left"), inputs=["left", "nobody"]), "reads from 'nobody'"),
        (lambda job: job.operator("more", join_of("left"), inputs=["left", "right"], parallelism=0), "parallelism"),
        (lambda job: job.operator("more", lambda: 7, inputs=["left"]), "no Operator"),
        (lambda job: job.sink("more", FileSink("x"), input="out"), "reads from 'out'"),
    ],
)
def test_a_part_that_does_not_fit_is_refused(wrong: Any, message: str, tmp_path: Path) -> None:
    job = pipeline(tmp_path, "left", LEFT, RIGHT)
    with pytest.raises(ValueError, match=message):
        wrong(job)


def test_a_pipeline_without_a_sink_or_with_a_loose_end_is_refused(tmp_path: Path) -> None:
    job = Pipeline("job", catalog=f"sqlite:///{tmp_path}/catalog.db", state=tmp_path / "state")
    with pytest.raises(ValueError, match="needs a source and a sink"):
        job.run()
    job.source("a", TableSource(LEFT)).source("b", TableSource(LEFT)).sink("out", FileSink(tmp_path / "out"), input="a")
    with pytest.raises(ValueError, match="nobody reads from 'b'"):
        job.run()


def test_rows_that_an_operator_cannot_take_end_the_job(tmp_path: Path) -> None:
    job = pipeline(tmp_path, "left", LEFT, RIGHT.rename_columns(["key", "ts", "n"]))
    with pytest.raises(LsmStateError, match="columns"):
        job.run()


def test_a_barrier_is_not_held_up_by_back_pressure(tmp_path: Path) -> None:
    """A source whose queue is full still gets its barrier in: nothing of the rows that wait is in the checkpoint."""
    source = Waiting(LEFT, 1200, batch_rows=10)
    held = source.go_on

    def hold(batch: pa.RecordBatch) -> None:
        assert held.wait(60)

    job = plain(tmp_path, source, lambda: Passing(hold))
    job.start()
    driver = job._running()
    driver.want_checkpoint()
    while driver._coordinator.current_id is None:
        assert not driver.ended.wait(0.01)
    assert "rows" in driver._coordinator.snapshots, "the source has answered"
    held.set()
    job.wait()
    assert numbers(tmp_path / "out") == list(range(1200))


def test_a_barrier_needs_numbers_from_one() -> None:
    with pytest.raises(ValueError, match="epoch"):
        CheckpointBarrier(0)


def test_all_columns_of_the_rows_come_through(tmp_path: Path) -> None:
    plain(tmp_path, TableSource(LEFT)).run()
    table = pq.read_table(tmp_path / "out").sort_by("n")
    assert table.select(SCHEMA.names).cast(SCHEMA) == LEFT
