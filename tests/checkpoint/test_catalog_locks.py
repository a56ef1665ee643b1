"""A catalog that others have locked, or that cannot be written: it can be read, and says what to do."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lsmstate.checkpoint.catalog import Catalog, catalog
from tests.support.catalog_cases import commit, latest, refused, start_job
from tests.support.postgres import PostgresServer

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    connection.execute(statement).fetchall()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@contextmanager
def held(path: Path, *statements: str) -> Iterator[None]:
    """Another process has run these statements on the file, and has not finished."""
    command = [sys.executable, "-c", HOLD, str(path), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        try:
            yield
        finally:
            other.stdin.close()
            other.wait()


# ---- locked


def test_locked_file_can_be_read_and_says_locked_to_writers(path: Path) -> None:
    with Catalog.open(f"sqlite:///{path}?timeout=0.2") as opened:
        mine = start_job(opened)
        with held(path, "BEGIN IMMEDIATE", "UPDATE lsmstate_fences SET incarnation = 99"):
            with refused("locked", r"is locked by another process for too long\. See who holds it"):
                commit(opened, mine, 2)
            assert latest(opened) == 1
            with Catalog.open(f"sqlite:///{path}") as second:
                assert latest(second) == 1
        commit(opened, mine, 2)
        assert latest(opened) == 2


def test_file_that_another_process_has_for_itself_is_told_to_readers_too(path: Path) -> None:
    Catalog.open(f"sqlite:///{path}").close()
    alone = ("PRAGMA locking_mode=EXCLUSIVE", "BEGIN IMMEDIATE", "UPDATE lsmstate_catalog SET version = 2", "COMMIT")
    with held(path, *alone), refused("locked", "is locked by another process", soon=True):
        Catalog.open(f"sqlite:///{path}?timeout=0.2")
    with Catalog.open(f"sqlite:///{path}") as opened:
        assert opened.jobs() == []


def test_locked_tables_of_a_server_are_told(postgres: PostgresServer) -> None:
    url = postgres.schema()
    with Catalog.open(url) as opened:
        mine = start_job(opened)
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE lsmstate_fences IN ACCESS EXCLUSIVE MODE")
            with refused("locked", "is locked by another process", soon=True):
                commit(opened, mine, 2)
            with refused("locked", "is locked by another process", soon=True):
                opened.jobs()
        commit(opened, mine, 2)


def test_job_that_another_transaction_holds_does_not_stop_other_jobs(postgres: PostgresServer) -> None:
    url = postgres.schema()
    with Catalog.open(url) as opened:
        mine = start_job(opened)
        opened.register("other", kind="sql", definition={})
        with psycopg.connect(url) as other:
            other.execute("SELECT * FROM lsmstate_fences WHERE name = 'job' FOR UPDATE")
            with refused("locked", "is locked by another process", soon=True):
                commit(opened, mine, 2)
            assert opened.take("other") == 1


def test_nobody_takes_a_job_in_the_midst_of_a_commit(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if catalog_url.startswith("sqlite"):
        catalog_url += "?timeout=0.2"
    asked = []

    def slow(*args: Any) -> None:
        with refused("locked", "is locked by another process", soon=True):
            other.take("job")
        asked.append(latest(other))
        add_checkpoint(*args)

    add_checkpoint = catalog.add_checkpoint
    with Catalog.open(catalog_url) as opened, Catalog.open(catalog_url) as other:
        mine = start_job(opened)
        monkeypatch.setattr(catalog, "add_checkpoint", slow)
        commit(opened, mine, 2)
        assert asked == [1]
        assert other.take("job") == mine + 1


# ---- read-only


def test_server_that_is_read_only_can_be_read_and_refuses_changes(postgres: PostgresServer) -> None:
    url = postgres.schema()
    with Catalog.open(url) as opened:
        start_job(opened)
    with Catalog.open(f"{url}%20-cdefault_transaction_read_only%3Don") as opened:
        assert latest(opened) == 1
        with refused("read_only", r"is read-only, nothing was changed\. Make it writable"):
            opened.take("job")


def test_read_only_file_can_be_read_and_refuses_changes(open_path: Path) -> None:
    with Catalog.open(f"sqlite:///{open_path}") as opened:
        start_job(opened)
        open_path.chmod(0o444)

        def look() -> None:
            with Catalog.open(f"sqlite:///{open_path}") as seen:
                assert latest(seen) == 1
                with refused("read_only", "is read-only, nothing was changed"):
                    seen.take("job")

        in_unprivileged_child(open_path.parent, look)
        assert latest(opened) == 1


def test_file_without_rights_is_told(open_path: Path) -> None:
    with Catalog.open(f"sqlite:///{open_path}") as opened:
        start_job(opened)
    open_path.chmod(0)

    def look() -> None:
        with refused("down", r"cannot be reached\. .* the rights of the file"):
            Catalog.open(f"sqlite:///{open_path}")

    in_unprivileged_child(open_path.parent, look)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A file in a directory that other users get to."""
    with tempfile.TemporaryDirectory(prefix="lsmstate-catalog-") as directory:
        yield Path(directory) / "catalog.db"


def in_unprivileged_child(directory: Path, look: Callable[[], None]) -> None:
    """Runs it in a child that is not root, since root may write everywhere."""
    user = pwd.getpwnam("nobody")
    if os.geteuid() == 0:
        for entry in (directory, *directory.iterdir()):
            os.chown(entry, user.pw_uid, user.pw_gid)
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
                os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            look()
            ended = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0
