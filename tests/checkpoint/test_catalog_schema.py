"""The version of the catalog's schema: older ones are migrated, newer ones refused, half of a migration is none."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect

from lsmstate import CatalogError
from lsmstate.checkpoint.catalog import Catalog, schema
from lsmstate.checkpoint.catalog.schema import MIGRATIONS, VERSION
from tests.support.catalog_golden import DEFINITION, GOLDEN, JOB, TO_VERSION_1, fill


@pytest.fixture
def old_url(catalog_url: str, tmp_path: Path) -> str:
    """A catalog of version 1: the golden file of SQLite, or the same brought back on the server."""
    if catalog_url.startswith("sqlite"):
        shutil.copy(GOLDEN, tmp_path / "catalog.db")
        return f"sqlite:///{tmp_path}/catalog.db"
    with Catalog.open(catalog_url) as catalog:
        fill(catalog)
        catalog._session.write(lambda connection: [connection.exec_driver_sql(text) for text in TO_VERSION_1])
    return catalog_url


def described(url: str) -> dict[str, Any]:
    """All tables of a catalog, with columns and keys."""

    def look(connection: Connection) -> dict[str, Any]:
        asked = inspect(connection)
        return {
            table: (
                [(c["name"], str(c["type"]), c["nullable"]) for c in asked.get_columns(table)],
                asked.get_pk_constraint(table)["constrained_columns"],
                sorted((key["constrained_columns"], key["referred_table"]) for key in asked.get_foreign_keys(table)),
            )
            for table in asked.get_table_names()
        }

    with Catalog.open(url) as catalog:
        return catalog._session.read(look)


def version_of(path: Path) -> tuple[int, list[str]]:
    with sqlite3.connect(path) as connection:
        version = connection.execute("SELECT version FROM lsmstate_catalog").fetchone()[0]
        return version, [row[1] for row in connection.execute("PRAGMA table_info(lsmstate_checkpoints)")]


def test_there_is_a_migration_from_every_version_to_the_next() -> None:
    assert sorted(MIGRATIONS) == list(range(1, VERSION))


def test_golden_catalog_is_of_version_1() -> None:
    version, columns = version_of(GOLDEN)
    assert version == 1
    assert "note" not in columns


def test_catalog_of_version_1_is_read_after_its_migration_as_it_was_written(old_url: str) -> None:
    for _ in range(2):  # the second time there is nothing to do
        with Catalog.open(old_url) as catalog:
            idle, job = catalog.jobs()
            assert (idle.name, idle.kind, idle.latest_checkpoint_epoch) == ("idle", "spark", 0)
            assert (job.name, job.definition, job.comment) == (JOB, DEFINITION, "golden")
            assert (job.latest_checkpoint_epoch, job.line, job.checkpoint_interval_ms) == (2, 2, 5000)
            assert job.source_checkpoints == {"orders": {"0": "2"}, "payments": {"p\x00": "ü"}}
            rows = catalog.checkpoints(JOB)
            assert [(row.epoch, row.status, row.note) for row in rows] == [
                (1, "committed", ""),
                (2, "committed", ""),
                (3, "left_behind", ""),
            ]
            assert [(row.size_bytes, row.watermark, row.is_incremental) for row in rows] == [
                (100, 7, False),
                (200, 14, True),
                (300, 21, True),
            ]
    with Catalog.open(old_url) as catalog:
        assert catalog.next_checkpoint_id(JOB, catalog.take(JOB)) == 4


def test_migrated_schema_equals_a_new_one(old_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if old_url.startswith("sqlite"):
        new_url = f"sqlite:///{tmp_path}/new.db"
    else:
        new_url = request.getfixturevalue("postgres").schema()
    assert described(old_url) == described(new_url)


def test_migration_that_fails_leaves_the_old_version_whole(old_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(connection: Connection) -> None:
        MIGRATIONS[1](connection)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", {1: crash})
        with pytest.raises(KeyboardInterrupt):
            Catalog.open(old_url)
    if old_url.startswith("sqlite"):
        version, columns = version_of(Path(old_url.removeprefix("sqlite:///")))
        assert (version, "note" in columns) == (1, False)
    with Catalog.open(old_url) as catalog:
        assert len(catalog.jobs()) == 2


def test_schema_that_was_made_half_is_not_there(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(schema, "insert", None)  # fails after all tables were made
        with pytest.raises(TypeError):
            Catalog.open(catalog_url)
    with Catalog.open(catalog_url) as catalog:
        assert catalog.jobs() == []


def test_newer_schema_is_refused_and_not_touched(catalog_url: str) -> None:
    with Catalog.open(catalog_url) as catalog:
        fill(catalog)
        newer = ("ALTER TABLE lsmstate_jobs ADD COLUMN owner TEXT", "UPDATE lsmstate_catalog SET version = 99")
        catalog._session.write(lambda connection: [connection.exec_driver_sql(text) for text in newer])
    with pytest.raises(
        CatalogError, match=f"has version 99, this lsmstate knows up to {VERSION}; nothing was"
    ) as error:
        Catalog.open(catalog_url)
    assert error.value.reason == "newer"
    assert error.value.__context__ is None


@pytest.mark.parametrize("statement", ["DELETE FROM lsmstate_catalog", "UPDATE lsmstate_catalog SET version = 0"])
def test_schema_that_does_not_tell_its_version_is_refused(catalog_url: str, statement: str) -> None:
    with Catalog.open(catalog_url) as catalog:
        catalog._session.write(lambda connection: connection.exec_driver_sql(statement).close())
    with pytest.raises(CatalogError, match="does not say which version its schema has") as error:
        Catalog.open(catalog_url)
    assert error.value.reason == "damaged"


def test_database_with_tables_of_others_keeps_them(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shared.db") as connection:
        connection.execute("CREATE TABLE jobs AS SELECT 'theirs' AS name")
    with Catalog.open(f"sqlite:///{tmp_path}/shared.db") as catalog:
        fill(catalog)
    with sqlite3.connect(tmp_path / "shared.db") as connection:
        assert connection.execute("SELECT name FROM jobs").fetchall() == [("theirs",)]
