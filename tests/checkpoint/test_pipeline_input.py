"""Pipelines that do not fit: themselves, their checkpoint, or what they had been."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lsmstate.checkpoint import Catalog, CheckpointBarrier, FileSink, Pipeline, TableSource
from lsmstate.errors import CheckpointError, LsmStateError
from tests.support.pipeline_job import join_of, numbers, pipeline, plain, rows
from tests.support.pipeline_parts import Passing

LEFT, RIGHT = rows(1, 1200), rows(2, 1200)


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


def test_a_barrier_needs_numbers_from_one() -> None:
    with pytest.raises(ValueError, match="epoch"):
        CheckpointBarrier(0)
