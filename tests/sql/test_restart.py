"""Restarts of streaming tables: from the catalog alone, each row once, and one that fails stops no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsmstate.checkpoint import Catalog
from lsmstate.errors import CheckpointError
from lsmstate.sql import Session, restore
from tests.support.sql_tables import (
    SELECT,
    by_duckdb,
    catalog,
    gates,
    named,
    put,
    rows,
    script,
    streaming,
    written,
)


def test_a_table_that_was_stopped_goes_on_from_the_catalog_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with monkeypatch.context() as patch:
        made = gates(patch, 150)
        session = Session(catalog(root), root / "state")
        session.execute(script(root))
        assert session.start() == {}
        assert all(source.waits.wait(60) for source in made)
        stopped = session.stop()["joined"]
    assert stopped.error is None
    half = written(root, "joined")
    assert 0 < len(half) < len(by_duckdb(root, SELECT))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    outcome = restore(catalog(root)).wait()["joined"]
    assert outcome.error is None
    assert outcome.epoch is not None
    assert outcome.epoch > (stopped.epoch or 0)
    assert written(root, "joined") == by_duckdb(root, SELECT)


def test_rows_after_the_last_checkpoint_come_again_and_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        made = gates(patch, 150)
        session = Session(catalog(root), root / "state")
        session.execute(script(root, more=""))
        session.start()
        assert all(source.waits.wait(60) for source in made)
        assert session.jobs["joined"].pipeline.checkpoint(60) == 1
        for source in made:
            source.waits.clear()
            source._before += 100
        assert all(source.waits.wait(60) for source in made)
        assert session.stop(savepoint=False)["joined"].epoch == 1
    assert restore(catalog(root)).wait()["joined"].error is None
    assert written(root, "joined") == by_duckdb(root, SELECT)


def test_the_failure_of_one_table_stops_no_other_and_is_told(root: Path) -> None:
    put(root / "in/other", rows(3, 100), files=1)
    session = Session(catalog(root), root / "state")
    other = SELECT.replace("clicks", "other")
    session.execute(script(root) + named(root, "other") + streaming(root, "bad", other))
    (root / "in/other/0000.parquet").write_bytes(b"no parquet")
    outcomes = session.run()
    assert outcomes["joined"].error is None
    assert isinstance(outcomes["bad"].error, CheckpointError)
    assert "0000.parquet: is no whole parquet file" in str(outcomes["bad"].error)
    assert written(root, "joined") == by_duckdb(root, SELECT)
    put(root / "in/other", rows(3, 100), files=1)
    assert restore(catalog(root)).wait()["bad"].error is None
    assert written(root, "bad") == by_duckdb(root, other)


def test_files_that_come_after_the_end_are_an_error_and_not_lost(root: Path) -> None:
    session = Session(catalog(root), root / "state")
    session.execute(script(root))
    assert session.run()["joined"].error is None
    put(root / "in/clicks", rows(5, 50), files=1, first=9)
    error = session.run()["joined"].error
    assert isinstance(error, CheckpointError)
    assert "'follow' = 'true'" in str(error)


def test_a_followed_directory_goes_on_with_new_files(tmp_path: Path) -> None:
    select = SELECT.replace("FULL", "INNER")
    session = Session(catalog(tmp_path), tmp_path / "state")
    for part in range(2):  # by time: nothing of the second part is late
        put(tmp_path / "in/impressions", rows(1, 400).slice(part * 200, 200), files=1, first=part)
        put(tmp_path / "in/clicks", rows(2, 400).slice(part * 200, 200), files=1, first=part)
        if part == 0:
            tables = named(tmp_path, "impressions", "clicks", more=", 'follow' = 'true'")
            session.execute(tables + streaming(tmp_path, "joined", select, ""))
        session.start()
        progress = session.jobs["joined"].progress
        for _ in range(1000):
            session.jobs["joined"].pipeline.checkpoint(60)
            if written(tmp_path, "joined") == by_duckdb(tmp_path, select):
                break
        assert session.stop()["joined"].error is None
        assert progress.rows_in == {"impressions": 200, "clicks": 200}
    assert written(tmp_path, "joined") == by_duckdb(tmp_path, select)


def test_an_interrupted_run_stops_with_a_savepoint(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = gates(monkeypatch, 150)

    def interrupted(self: Any) -> None:
        assert all(source.waits.wait(60) for source in made)
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "wait", interrupted)
    session = Session(catalog(root), root / "state")
    session.execute(script(root, more=""))
    with pytest.raises(KeyboardInterrupt):
        session.run()
    with Catalog.open(catalog(root)) as opened:
        assert [row.latest_checkpoint_epoch for row in opened.jobs()] == [1]
