"""Jobs that are brought back: to an earlier epoch, beside others, and where the catalog makes difficulties."""

from __future__ import annotations

import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from iopool import LocalFileSystem
from lsmstate.checkpoint import Catalog, FileSink, JobMaster, Pipeline, TableSource
from lsmstate.checkpoint.runtime.starting import starting
from lsmstate.errors import CheckpointError, LsmStateError
from tests.support.pipeline_job import expected, pipeline, rows, written
from tests.support.pipeline_parts import Passing, Waiting

LEFT, RIGHT = rows(21, 1200), rows(22, 1200)


def url(root: Path) -> str:
    return f"sqlite:///{root}/catalog.db"


def three_epochs(root: Path, kind: str) -> list[list[object]]:
    """A job that stopped after epochs at 400, 800 and 1,200 rows of each side; what was written after each."""
    sources = {name: Waiting(table, 400) for name, table in (("left", LEFT), ("right", RIGHT))}
    job = pipeline(root, kind, LEFT, RIGHT, sources=lambda name, table: sources[name], interval_s=600)
    job.start()
    states: list[list[object]] = []
    for epoch in (1, 2, 3):
        assert all(source.waits.wait(30) for source in sources.values())
        assert job.checkpoint(30) == epoch
        states.append(list(written(root / "out")))
        for source in sources.values():
            source.allow(400)
    job.stop(savepoint=False)
    return states


@pytest.mark.parametrize("kind", ["full", "instant"])
def test_a_job_restored_at_an_earlier_epoch_is_as_if_it_had_never_gone_further(kind: str, tmp_path: Path) -> None:
    states = three_epochs(tmp_path, kind)
    with Catalog.open(url(tmp_path)) as catalog:
        job = catalog.job("job")
        assert job is not None
        assert job.latest_checkpoint_epoch == 3
        catalog.rewind("job", catalog.take("job"), 1, job.line + 1)
    again = pipeline(tmp_path, kind, LEFT, RIGHT, sources=lambda name, table: Waiting(table, 0), interval_s=600)
    again.start()
    again.stop(savepoint=False)
    assert written(tmp_path / "out") == states[0]
    assert pipeline(tmp_path, kind, LEFT, RIGHT).run() > 1
    assert written(tmp_path / "out") == expected(kind, LEFT, RIGHT)
    with Catalog.open(url(tmp_path)) as catalog:
        left_behind = [row.epoch for row in catalog.checkpoints("job") if row.status == "left_behind"]
    assert left_behind == [2, 3]


def test_a_catalog_that_is_locked_for_a_while_delays_the_job_and_loses_nothing(tmp_path: Path) -> None:
    sources = {name: Waiting(table, 400) for name, table in (("left", LEFT), ("right", RIGHT))}
    job = pipeline(
        tmp_path, "full", LEFT, RIGHT, sources=lambda name, t: sources[name], interval_s=600, failures_max=99
    )
    job.start()
    assert all(source.waits.wait(30) for source in sources.values())
    other = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    other.execute("begin immediate")
    job._running()[1].want_checkpoint()
    for source in sources.values():
        source.go_on.set()
    assert not job._running()[1].ended.wait(0.3)
    assert job.epoch == 0
    other.execute("rollback")
    other.close()
    assert job.wait(120) >= 1
    assert written(tmp_path / "out") == expected("full", LEFT, RIGHT)


def test_the_master_restores_every_job_at_its_epoch(tmp_path: Path) -> None:
    for name in ("one", "two"):
        job = pipeline(
            tmp_path, "left", LEFT, RIGHT, name=name, sink=FileSink(tmp_path / name),
            sources=lambda side, table: Waiting(table, 600),
        )  # fmt: skip
        job.start()
        job.checkpoint(30)
        job.stop()
    makers = {
        name: lambda name=name: pipeline(tmp_path, "left", LEFT, RIGHT, name=name, sink=FileSink(tmp_path / name))
        for name in ("one", "two")
    }
    master = JobMaster(url(tmp_path), makers)
    assert master.restore() == {}
    outcomes = master.wait()
    assert set(outcomes) == {"one", "two"}
    assert all(outcome.error is None and (outcome.epoch or 0) > 1 for outcome in outcomes.values())
    for name in ("one", "two"):
        assert written(tmp_path / name) == expected("left", LEFT, RIGHT)


def test_one_jobs_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    def fail(batch: pa.RecordBatch) -> None:
        raise RuntimeError("broken")

    def make(name: str, operator: Passing | None = None) -> Pipeline:
        job = Pipeline(name, catalog=url(tmp_path), state=tmp_path / "state", checkpoint_interval=timedelta(seconds=60))
        job.source("rows", TableSource(LEFT), time="ts")
        if operator is not None:
            job.operator("middle", lambda: operator, inputs=["rows"])
        return job.sink("out", FileSink(tmp_path / name), input="middle" if operator else "rows")

    for name in ("sound", "fails", "forgotten", "unmade"):
        with Catalog.open(url(tmp_path)) as catalog:
            catalog.register(name, kind="pipeline", definition={})

    def broken() -> Pipeline:
        raise OSError(2, "its input is gone")

    master = JobMaster(
        url(tmp_path),
        {"sound": lambda: make("sound"), "fails": lambda: make("fails", Passing(fail)), "unmade": broken},
    )
    told = master.restore()
    assert set(told) == {"forgotten", "unmade"}
    outcomes = master.wait()
    assert outcomes["sound"].error is None
    assert outcomes["sound"].epoch == 1
    assert isinstance(outcomes["fails"].error, CheckpointError)
    assert isinstance(outcomes["unmade"].error, OSError)
    assert "nothing says how it is made" in str(outcomes["forgotten"].error)


def test_jobs_are_stopped_with_a_savepoint(tmp_path: Path) -> None:
    source = Waiting(LEFT, 400)

    def make() -> Pipeline:
        return pipeline(
            tmp_path, "left", LEFT, RIGHT, sources=lambda name, t: source if name == "left" else TableSource(t)
        )

    master = JobMaster(url(tmp_path), {"job": make})
    master.start("job")
    assert source.waits.wait(30)
    assert (master.stop()["job"].epoch or 0) >= 1
    pipeline(tmp_path, "left", LEFT, RIGHT).run()
    assert written(tmp_path / "out") == expected("left", LEFT, RIGHT)


def test_two_drivers_do_not_start_at_once(tmp_path: Path) -> None:
    """One that pauses between deciding and opening would take the state back that the other has moved on."""
    fs = LocalFileSystem()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with starting(fs, "job", str(tmp_path)):
            entered.set()
            assert leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(30)
    with (
        pytest.raises(CheckpointError, match="another driver has been starting it"),
        starting(fs, "job", str(tmp_path), 0.05),
    ):
        pass
    leave.set()
    with starting(fs, "job", str(tmp_path)):
        pass
    holder.join()


def test_a_manifest_of_the_future_is_refused(tmp_path: Path) -> None:
    pipeline(tmp_path, "left", LEFT, RIGHT, interval_s=600).run()
    from lsmstate.checkpoint.manifest.document import encode_manifest
    from lsmstate.checkpoint.manifest.store import ManifestStore

    (path,) = (tmp_path / "state").glob("*/checkpoints")
    store = ManifestStore(LocalFileSystem(), str(path))
    manifest = store.latest()
    assert manifest is not None
    (file,) = path.glob("*.json")
    object.__setattr__(manifest, "version", 99)
    file.write_bytes(b"".join([encode_manifest(file.name, manifest)]))
    with pytest.raises(LsmStateError, match="99"):
        pipeline(tmp_path, "left", LEFT, RIGHT).run()
