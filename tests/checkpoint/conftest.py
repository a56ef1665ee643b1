"""What the tests of checkpoints share: a PostgreSQL server a process, and a new catalog on either database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lsmstate.checkpoint.catalog import Catalog, JobRow
    from lsmstate.checkpoint.tables.table_set import TableSet
    from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of this process. Whoever stops it starts it again."""
    from tests.support.postgres import PostgresServer  # here, because most tests need no server

    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a catalog that does not exist yet, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/home/of/catalog.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.schema()


@pytest.fixture
def url(catalog_url: str) -> str:
    """The same for what is no catalog: the database that a sink writes to."""
    return catalog_url


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[TableSet]:
    """The tables of a new operator."""
    from lsmstate.checkpoint.tables.table_set import TableSet  # here, because most tests need no tables

    with TableSet(tmp_path / "op") as opened:
        yield opened


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    """That catalog, open."""
    from lsmstate.checkpoint.catalog import Catalog  # here, because most tests need no database

    with Catalog.open(catalog_url) as opened:
        yield opened


@pytest.fixture
def job(catalog: Catalog) -> JobRow:
    """A job in that catalog, named job."""
    return catalog.register("job", kind="pipeline", definition={"sources": ["orders"]})
