"""Streaming tables in the catalog: what stands there, and how they come back from it alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from lsmstate.checkpoint import Catalog
from lsmstate.errors import CatalogError, CheckpointError, LsmStateError
from lsmstate.sql import Session, SqlError
from tests.support.sql_tables import (
    SELECT,
    by_duckdb,
    catalog,
    gates,
    script,
    streaming,
    written,
)


def test_the_catalog_keeps_all_of_a_streaming_table(root: Path) -> None:
    session = Session(catalog(root), root / "state")
    made = script(root, more="'checkpoint.interval' = '5000'").replace("joined WITH", "joined COMMENT 'both' WITH")
    session.execute(made)
    with Catalog.open(catalog(root)) as opened:
        row = opened.job("joined")
    assert row is not None
    assert (row.kind, row.comment, row.checkpoint_interval_ms) == ("sql", "both", 5000)
    assert (row.latest_checkpoint_epoch, row.source_checkpoints) == (0, {})
    assert row.created_ms > 0
    assert row.definition["sql"] == made.splitlines()[2].rstrip(";")
    assert row.definition["options"] == {
        "connector": "parquet",
        "path": f"{root}/out/joined",
        "checkpoint.interval": "5000",
    }
    assert set(row.definition["tables"]) == {"impressions", "clicks"}
    outcome = session.run()["joined"]
    with Catalog.open(catalog(root)) as opened:
        after = opened.job("joined")
    assert after is not None
    assert (after.job_id, after.created_ms, after.definition) == (row.job_id, row.created_ms, row.definition)
    assert after.latest_checkpoint_epoch == outcome.epoch
    assert after.source_checkpoints["clicks"]["file"] == "0001.parquet"
    assert after.source_checkpoints["impressions"]["file"] == "0002.parquet"


def test_an_absent_interval_is_sixty_seconds(root: Path) -> None:
    Session(catalog(root), root / "state").execute(script(root, more=""))
    with Catalog.open(catalog(root)) as opened:
        assert [row.checkpoint_interval_ms for row in opened.jobs()] == [60_000]


def test_show_tells_what_the_catalog_keeps(root: Path) -> None:
    session = Session(catalog(root), root / "state")
    *_, shown = session.execute(script(root) + "SHOW STREAMING TABLES")
    (row,) = shown.rows
    assert list(row) == [
        "name",
        "created_ms",
        "definition",
        "options",
        "comment",
        "checkpoint_interval_ms",
        "latest_checkpoint_epoch",
        "source_checkpoints",
    ]
    assert row["name"] == "joined"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda told: told.replace('"format":1', '"format":2'), "newer lsmstate"),
        (lambda told: told.replace('"tables"', '"tabels"'), "cannot be used"),
        (lambda told: told.replace('"path":', '"pat":'), "cannot be used"),
        (lambda told: told.replace("SELECT", "SELEKT"), "line 1, column"),
    ],
)
def test_a_damaged_definition_is_told_and_stops_no_other(damage: Callable[[str], str], told: str, root: Path) -> None:
    session = Session(catalog(root), root / "state")
    session.execute(script(root) + streaming(root, "bad", SELECT))
    engine = create_engine(catalog(root))
    with engine.begin() as connection:
        found = connection.execute(text("SELECT job_id, definition FROM lsmstate_jobs")).all()
        for job_id, definition in found:
            if "STREAMING TABLE bad" in definition:
                changed = {"id": job_id, "told": damage(definition)}
                connection.execute(text("UPDATE lsmstate_jobs SET definition = :told WHERE job_id = :id"), changed)
    engine.dispose()
    outcomes = session.run()
    assert outcomes["joined"].error is None
    assert isinstance(outcomes["bad"].error, LsmStateError)
    assert told in str(outcomes["bad"].error)


def test_a_streaming_table_is_made_once(root: Path) -> None:
    session = Session(catalog(root), root / "state")
    session.execute(script(root))
    with pytest.raises(SqlError, match=r"line 1, column 1: streaming table 'joined' exists already; drop it"):
        session.execute(streaming(root, "joined", SELECT))
    (kept,) = session.execute(streaming(root, "IF NOT EXISTS joined", SELECT))
    assert "stays as it is" in kept.text
    with pytest.raises(SqlError, match="exists already"):
        Session(catalog(root), root / "state").execute(script(root))


def test_a_table_that_is_made_again_as_it_stands_goes_on_if_that_is_wanted(root: Path) -> None:
    Session(catalog(root), root / "state").execute(script(root))
    again = Session(catalog(root), root / "state")
    assert "stays as it is" in again.execute(script(root), resume=True)[-1].text
    third = Session(catalog(root), root / "state")
    with pytest.raises(SqlError, match="made otherwise: its statement changed"):
        third.execute(script(root, select=f"{SELECT} WHERE i.n > 3"), resume=True)
    with pytest.raises(SqlError, match="made otherwise: its statement and its options changed"):
        third.execute(script(root, more="'checkpoint.interval' = '7'"), resume=True)


def test_two_tables_cannot_write_to_one_place(root: Path) -> None:
    session = Session(catalog(root), root / "state")
    session.execute(script(root))
    with pytest.raises(SqlError, match="'joined' writes to the same place"):
        session.execute(streaming(root, "joined", SELECT).replace("TABLE joined", "TABLE other"))


def test_a_dropped_table_is_gone_and_a_new_one_does_not_find_its_state(root: Path) -> None:
    session = Session(catalog(root), root / "state")
    session.execute(script(root))
    session.run()
    (dropped,) = session.execute("DROP STREAMING TABLE joined")
    assert "its state can be removed" in dropped.text
    assert session.run() == {}
    again = streaming(root, "joined", SELECT)
    with pytest.raises(SqlError, match="is no empty directory, and the table is new"):
        session.execute(again)
    session.execute(again.replace("out/joined", "out/second"))
    assert session.run()["joined"].epoch is not None
    assert written(root, "second") == by_duckdb(root, SELECT)


def test_dropping_what_is_not_there_is_an_error_unless_told(root: Path) -> None:
    session = Session(catalog(root), root / "state")
    with pytest.raises(SqlError, match="no streaming table 'nobody'; there are: none"):
        session.execute("DROP STREAMING TABLE nobody")
    assert session.execute("DROP STREAMING TABLE IF EXISTS nobody")[0].text == "there is no streaming table nobody"
    with Catalog.open(catalog(root)) as opened:
        opened.register("plain", kind="pipeline", definition={})
    for statement in ("DROP STREAMING TABLE plain", "DROP STREAMING TABLE IF EXISTS plain"):
        with pytest.raises(SqlError, match="no streaming table 'plain'"):
            session.execute(statement)
    with pytest.raises(SqlError, match="is a job of kind pipeline"):
        session.execute(script(root, "plain"))


def test_a_script_can_drop_and_make_in_one(root: Path) -> None:
    session = Session(catalog(root), root / "state")
    session.execute(script(root))
    session.execute("DROP STREAMING TABLE joined;" + streaming(root, "joined", f"{SELECT} WHERE i.n > 3"))
    assert [row["name"] for row in session.execute("SHOW STREAMING TABLES")[0].rows] == ["joined"]


def test_a_session_runs_once_at_a_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gates(monkeypatch, 50)
    session = Session(catalog(root), root / "state")
    with pytest.raises(CheckpointError, match=r"start\(\) it"):
        session.wait()
    session.execute(script(root))
    session.start()
    with pytest.raises(CheckpointError, match="runs already"):
        session.start()
    with pytest.raises(SqlError, match=r"stop\(\) it before"):
        session.execute("DROP STREAMING TABLE joined")
    assert session.stop()["joined"].error is None


def test_what_looks_like_a_credential_is_refused(root: Path) -> None:
    with pytest.raises(SqlError, match="credential") as caught:
        Session(catalog(root), root / "state").execute(script(root, select=f"{SELECT} WHERE 'token' = 'hunter2'"))
    assert "hunter2" not in str(caught.value)


def test_a_catalog_that_cannot_be_is_refused_without_its_url(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no URL of a catalog"):
        Session("mysql://me:hunter2@host/db", tmp_path)
    (tmp_path / "file").write_bytes(b"not a database at all, but long enough to be taken for one" * 20)
    with pytest.raises(CatalogError):
        Session(f"sqlite:///{tmp_path}/file", tmp_path).execute("SHOW STREAMING TABLES")
