"""Pipelines at odd moments: what once was lost, doubled, stuck or badly told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsmstate.checkpoint import (
    Catalog,
    FileSink,
    JobMaster,
    Lookup,
    Operator,
    Pipeline,
    ReferenceTable,
    TableSource,
)
from lsmstate.checkpoint import CheckpointBarrier as Barrier
from lsmstate.checkpoint.coordinator.events import Event
from lsmstate.errors import CheckpointError, FencedError, LsmStateError
from tests.support.pipeline_job import numbers, pipeline, plain, rows
from tests.support.pipeline_parts import Faulty, Waiting

LEFT, RIGHT = rows(41, 400), rows(42, 400)
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class Sides(Operator):
    """Says from which input a row came."""

    def __init__(self, may: threading.Semaphore | None = None) -> None:
        self._may = may

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        if self._may is not None and number == 1:
            assert self._may.acquire(timeout=60)
        yield batch.append_column("side", pa.array([number] * batch.num_rows, pa.int64()))


def unaligned(root: Path, may: threading.Semaphore | None, name: str = "sides", parallelism: int = 1) -> Pipeline:
    job = Pipeline(
        "job",
        catalog=f"sqlite:///{root}/catalog.db",
        state=root / "state",
        checkpoint_interval=timedelta(hours=1),
        align_timeout=timedelta(milliseconds=1),
    )
    job.source("rows", TableSource(LEFT, batch_rows=20), time="ts")
    job.operator(name, lambda: Sides(may), inputs=["rows", "rows"], parallelism=parallelism)
    return job.sink("out", FileSink(root / "out"), input=name)


def with_records_in_flight(root: Path) -> None:
    """A job that reads a source twice, stopped when one of its inputs was far behind."""
    may = threading.Semaphore(2)
    job = unaligned(root, may)
    job.start()
    driver = job._running()[1]
    while driver._tasks["sides"].inbox._rows[1] < 16:  # its queue is full
        assert not driver.ended.wait(0.005)
    wish = driver.want_checkpoint()
    with driver.changed:
        while wish.epoch is None:
            assert not driver.ended.is_set()
            if not driver.changed.wait(0.05):
                may.release()
    driver.cancel()
    may.release(1000)
    job.wait()


def test_records_in_flight_of_a_source_that_is_read_twice_go_where_they_came_from(tmp_path: Path) -> None:
    with_records_in_flight(tmp_path)
    unaligned(tmp_path, None).run()
    found = pq.read_table(tmp_path / "out")
    for side in (0, 1):
        mine = found.filter(pa.compute.equal(found.column("side"), side))
        assert sorted(mine.column("n").to_pylist()) == list(range(400))


@pytest.mark.parametrize("change", [{"name": "renamed"}, {"parallelism": 2}])
def test_records_in_flight_that_have_no_place_any_more_are_not_dropped(change: dict[str, Any], tmp_path: Path) -> None:
    with_records_in_flight(tmp_path)
    with pytest.raises(CheckpointError, match="holds records in flight"):
        unaligned(tmp_path, None, **change).run()
    unaligned(tmp_path, None).run()
    assert pq.read_table(tmp_path / "out").num_rows == 800


def test_a_source_that_had_ended_and_gives_rows_again_is_told_instead_of_late(tmp_path: Path) -> None:
    plain(tmp_path, TableSource(LEFT.slice(0, 200))).run()
    with pytest.raises(CheckpointError, match="had ended"):
        plain(tmp_path, TableSource(LEFT)).run()


def test_a_wish_to_stop_at_the_natural_end_is_no_error(tmp_path: Path) -> None:
    jobs: list[Pipeline] = []
    committing = threading.Event()

    def tell(event: Event) -> None:
        if event.kind == "commit_started":
            jobs[0]._running()[1].want_checkpoint(then_stop=True)
            committing.set()

    jobs.append(plain(tmp_path, TableSource(LEFT), on_event=tell))
    assert jobs[0].run() == 1
    assert committing.is_set()


def test_an_ended_run_that_is_waited_for_late_does_not_harm_the_next(tmp_path: Path) -> None:
    job = plain(tmp_path, TableSource(LEFT))
    job.start()
    first = job._running()
    assert first[1].ended.wait(60)
    job.start()
    first[0].release()
    assert job.wait() == 2


@pytest.mark.parametrize(
    "wrong",
    [{"align_timeout": 5}, {"retain": 0}, {"failures_max": 0}, {"memory_bytes": -1}, {"checkpoint_interval": 3}],
)
def test_wrong_options_are_refused_before_anybody_is_fenced(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        plain(tmp_path, TableSource(LEFT), **wrong)


def test_parts_cannot_be_added_while_the_job_runs(tmp_path: Path) -> None:
    source = Waiting(LEFT, 40)
    job = plain(tmp_path, source)
    job.start()
    with pytest.raises(CheckpointError, match="runs already"):
        job.sink("more", FileSink(tmp_path / "more"), input="rows")
    source.go_on.set()
    job.wait()
    assert numbers(tmp_path / "out") == list(range(400))


def test_a_thread_of_the_job_cannot_wait_for_it(tmp_path: Path) -> None:
    jobs: list[Pipeline] = []
    errors: list[Exception] = []

    def tell(event: Event) -> None:
        try:
            jobs[0].stop()
        except CheckpointError as error:
            errors.append(error)

    jobs.append(plain(tmp_path, TableSource(LEFT), on_event=tell))
    jobs[0].run()
    assert errors
    assert "cannot wait for it" in str(errors[0])


def test_a_checkpoint_that_is_asked_for_holds_all_rows_before_the_wish(tmp_path: Path) -> None:
    held = threading.Event()

    def hold(call: str, number: int) -> Exception | None:
        if call == "pre_commit" and number == 1:
            assert held.wait(60)
        return None

    source = Waiting(LEFT, 40, batch_rows=40)
    job = plain(tmp_path, source, sink=Faulty(tmp_path / "out", hold))
    job.start()
    assert source.waits.wait(30)
    driver = job._running()[1]
    driver.want_checkpoint()
    while driver._coordinator.current_id is None:
        assert not driver.ended.wait(0.005)
    source.allow(40)
    assert source.waits.wait(30)
    wish = driver.want_checkpoint()  # while one without these rows is under way
    held.set()
    with driver.changed:
        assert driver.changed.wait_for(lambda: wish.epoch is not None, 60)
    assert wish.epoch == 2
    assert numbers(tmp_path / "out") == list(range(80))
    job.stop()


def test_a_hook_that_says_no_beside_a_reference_table_can_be_gone_on_from(tmp_path: Path) -> None:
    names = pa.table({"k": pa.array(range(60), pa.int64()), "name": [f"key {k}" for k in range(60)]})

    class No(Lookup):
        def handle_checkpoint(self, barrier: Barrier) -> bool:
            return barrier.epoch == 1

    for before in (100, 100):
        source = Waiting(LEFT, before)
        job = plain(tmp_path, source, lambda: No(ReferenceTable(TableSource(names), ["k"])))
        job.start()
        assert source.waits.wait(30)
        job.stop()
    plain(tmp_path, TableSource(LEFT), lambda: No(ReferenceTable(TableSource(names), ["k"]))).run()
    assert numbers(tmp_path / "out") == list(range(400))


def test_what_a_sink_raised_is_told_with_its_kind(tmp_path: Path) -> None:
    sink = Faulty(tmp_path / "out", lambda call, n: KeyError("part") if call == "pre_commit" else None)
    with pytest.raises(LsmStateError, match=r"KeyError\('part'\)"):
        plain(tmp_path, TableSource(LEFT), sink=sink, failures_max=1).run()


def test_a_job_that_was_dropped_while_it_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Catalog.take

    def drop_and_take(self: Catalog, name: str) -> int:
        self.drop(name)
        self.register(name, kind="pipeline", definition={})
        return real(self, name)

    monkeypatch.setattr(Catalog, "take", drop_and_take)
    with pytest.raises(FencedError, match="was dropped"):
        plain(tmp_path, TableSource(LEFT)).run()


def test_the_master_tells_of_jobs_that_have_ended_and_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    source = Waiting(LEFT, 40)
    master = JobMaster(
        f"sqlite:///{tmp_path}/catalog.db", {"job": lambda: pipeline(tmp_path, "left", LEFT, RIGHT),
        "plain": lambda: plain(tmp_path / "p", source)},
    )  # fmt: skip
    (tmp_path / "p").mkdir()
    with pytest.raises(ValueError, match="no maker of job 'nobody'"):
        master.start("nobody")
    master.start("plain")
    with pytest.raises(CheckpointError, match="runs already"):
        master.start("plain")
    master.start("job")
    ended = master._running["job"]._running()[1].ended
    assert ended.wait(60)
    assert set(master.outcomes) == {"job"}
    master.stop()
