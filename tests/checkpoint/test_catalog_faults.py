"""A catalog that is down, locked, read-only, full, damaged or gone: one typed error that says what to do."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from lsmstate.checkpoint.catalog import Catalog, catalog, faults
from lsmstate.checkpoint.catalog.tables import METADATA
from lsmstate.errors import CatalogError
from tests.support.catalog_cases import commit, latest, refused, start_job
from tests.support.postgres import PostgresServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


# ---- down


def test_server_that_is_down_is_told_and_found_again_with_all_that_was_committed(postgres: PostgresServer) -> None:
    url = postgres.schema()
    with Catalog.open(url) as opened:
        mine = start_job(opened)
        with postgres.down():  # at once, as in a crash
            with refused("down", r"cannot be reached\. Start its server, correct the URL .* repeating is safe"):
                opened.jobs()
            with refused("down", "cannot be reached"):
                commit(opened, mine, 2)
            with refused("down", "cannot be reached"):
                Catalog.open(url)
        assert latest(opened) == 1
        commit(opened, mine, 2)
        assert latest(opened) == 2


def test_server_that_stops_answering_is_told(postgres: PostgresServer) -> None:
    with Catalog.open(postgres.schema()) as opened:
        mine = start_job(opened)
        stopped = postgres.process_ids()
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            with refused("down", "cannot be reached", soon=True):
                opened.next_checkpoint_id("job", mine)
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)
        commit(opened, mine, 2)
        assert latest(opened) == 2


def test_lost_connection_is_made_again_unnoticed(postgres: PostgresServer) -> None:
    url = postgres.schema()
    with Catalog.open(url) as opened:
        mine = start_job(opened)
        ours = "application_name = 'lsmstate'"
        postgres.execute(url, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {ours}")
        commit(opened, mine, 2)
        postgres.execute(url, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {ours}")
        assert latest(opened) == 2


def test_conflict_is_tried_again_and_told_if_it_stays(postgres: PostgresServer) -> None:
    raise_conflict = "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$"
    tries = 0

    def work(connection: Connection) -> int:
        nonlocal tries
        tries += 1
        if tries % 10 not in (3, 0):
            connection.exec_driver_sql(raise_conflict)
        return tries

    with Catalog.open(postgres.schema()) as opened:
        assert opened._session.write(work) == 3
        with refused("conflict", r"changed by too many others at once\. Repeat the call"):
            opened._session.write(work)
    assert tries == 8


@pytest.mark.parametrize("fault", ["no server", "no database", "no host"])
def test_wrong_address_is_told(postgres: PostgresServer, fault: str) -> None:
    url = {
        "no server": "postgresql://u:hunter2@127.0.0.1:1/db",
        "no database": postgres.url(database="nowhere"),
        "no host": "postgres://u:hunter2@no-such-host.invalid/db",
    }[fault]
    with refused("down", "cannot be reached"):
        Catalog.open(url)


def test_wrong_password_is_told(postgres: PostgresServer) -> None:
    with refused("denied", r"refuses us\. Check user, password and rights"):
        Catalog.open(postgres.url(password="wrong"))


def test_missing_rights_are_told(postgres: PostgresServer) -> None:
    url = postgres.schema()
    Catalog.open(url).close()
    schema = url.rpartition("%3D")[2]
    postgres.execute(url, f"DROP ROLE IF EXISTS {schema}_guest", f"CREATE ROLE {schema}_guest LOGIN PASSWORD 'guest'")
    guest = url.replace(f"//lsmstate:{postgres.password}@", f"//{schema}_guest:guest@")
    with refused("denied", r"refuses us\. Check user, password and rights"):
        Catalog.open(guest)
    postgres.execute(
        url,
        f"GRANT USAGE ON SCHEMA {schema} TO {schema}_guest",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}_guest",
    )
    with Catalog.open(guest) as opened:
        assert opened.jobs() == []
        with refused("denied", "refuses us"):
            opened.register("job", kind="sql", definition={})


def test_missing_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with refused("driver", r"needs psycopg: pip install 'lsmstate\[postgres\]'"):
        Catalog.open("postgresql://u:p@h/db")


def test_file_that_was_removed_is_told_instead_of_written_to(path: Path) -> None:
    with Catalog.open(f"sqlite:///{path}") as opened:
        mine = start_job(opened)
        path.unlink()
        with refused("down", r"its file is gone\. Bring it back"):
            commit(opened, mine, 2)
    assert not path.exists()


def test_directory_in_place_of_the_file_is_told(path: Path) -> None:
    path.mkdir()
    with refused("down", "cannot be reached"):
        Catalog.open(f"sqlite:///{path}")


# ---- full, damaged, interrupted


def test_full_disk_is_told_and_nothing_is_changed(path: Path) -> None:
    with Catalog.open(f"sqlite:///{path}") as opened:
        mine = start_job(opened)
        used = opened._session._connection
        assert used is not None
        used.connection.driver_connection.execute("PRAGMA max_page_count=1")  # type: ignore[union-attr]
        with refused("full", r"has no space left, nothing was changed\. Free some"):
            opened.register("big", kind="sql", definition={"text": "x" * 100_000})
        assert [job.name for job in opened.jobs()] == ["job"]
        commit(opened, mine, 2)


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough " * 100, b"SQLite format 3\x00" + b"\xff" * 4080]
)
def test_file_that_is_no_database_is_told_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with refused("damaged", r"is damaged or is no catalog, nothing was changed\. Restore a backup"):
        Catalog.open(f"sqlite:///{path}")
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("DROP TABLE lsmstate_source_checkpoints", "is damaged or is no catalog"),
        ("UPDATE lsmstate_jobs SET definition = '[' || definition", "did not write"),
        ("UPDATE lsmstate_jobs SET definition = 5", "did not write"),
        ("UPDATE lsmstate_source_checkpoints SET offsets = 'x'", "did not write"),
    ],
)
def test_rows_that_somebody_else_has_changed_are_told(path: Path, damage: str, text: str) -> None:
    with Catalog.open(f"sqlite:///{path}") as opened:
        start_job(opened)
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    with Catalog.open(f"sqlite:///{path}") as opened, refused("damaged", text):
        opened.jobs()


def test_interrupt_inside_a_transaction_leaves_nothing_behind(
    catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> None:
        add_checkpoint(*args)
        raise KeyboardInterrupt

    add_checkpoint = catalog.add_checkpoint
    with Catalog.open(catalog_url) as opened:
        mine = start_job(opened)
        with monkeypatch.context() as patched:
            patched.setattr(catalog, "add_checkpoint", interrupted)
            with pytest.raises(KeyboardInterrupt):
                commit(opened, mine, 2)
        assert latest(opened) == 1
        assert opened.source_checkpoints("job") == {"orders": {"0": "1"}}
        commit(opened, mine, 2)
        assert latest(opened) == 2


# ---- durability


def test_sqlite_is_set_to_lose_nothing(path: Path) -> None:
    with Catalog.open(f"sqlite:///{path}") as opened:
        asked = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        told = opened._session.read(lambda c: [c.exec_driver_sql(f"PRAGMA {name}").scalar() for name in asked])
    assert told == ["wal", 2, 1, 3500]
    assert path.stat().st_mode & 0o777 == 0o600


def test_server_that_would_answer_before_it_is_durable_is_asked_to_wait(postgres: PostgresServer) -> None:
    with Catalog.open(f"{postgres.schema()}%20-csynchronous_commit%3Doff") as opened:
        told = opened._session.write(lambda c: c.exec_driver_sql("SHOW synchronous_commit").scalar())
    assert told == "on"


def test_relative_path_gets_its_directories_private_to_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Catalog.open("sqlite:///a/b/catalog.db") as opened:
        monkeypatch.chdir("/")
        opened.register("job", kind="sql", definition={})
    assert (tmp_path / "a" / "b" / "catalog.db").is_file()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_every_reason_is_documented() -> None:
    document = (Path(__file__).parents[2] / "docs" / "catalog.md").read_text("utf-8")
    documented = set(re.findall(r"^\| `([a-z_]+)` \|", document, re.MULTILINE)) - {
        table.name for table in METADATA.sorted_tables
    }
    assert documented == {*faults._SAYS, "newer", "driver", "unknown_job", "other_kind"}
    assert all(f"{reason}," in (CatalogError.__doc__ or "") for reason in documented - {"other_kind", "other"})
