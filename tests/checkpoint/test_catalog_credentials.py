"""Credentials never show: not in repr, errors, tracebacks or logs, and not in what the catalog stores."""

from __future__ import annotations

import logging
import pickle
import sqlite3
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsmstate import CatalogError
from lsmstate.checkpoint.catalog import Catalog, CheckpointRow
from lsmstate.checkpoint.catalog.text import without_credentials
from tests.support.postgres import USER, PostgresServer

SECRET = "hunter2-ünd/mehr"
QUOTED = "hunter2-%C3%BCnd%2Fmehr"


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Everything that is logged, also by the libraries at their most talkative."""
    for name in ("", "sqlalchemy", "sqlalchemy.engine", "sqlalchemy.pool", "sqlalchemy.dialects", "psycopg"):
        caplog.set_level(logging.DEBUG, name or None)
    yield caplog
    for name in ("sqlalchemy", "sqlalchemy.engine", "sqlalchemy.pool", "sqlalchemy.dialects", "psycopg"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def shown(error: BaseException) -> str:
    """All that an error shows: its chain, traceback, arguments, and what a pickle of it holds."""
    parts = [*traceback.format_exception(error), str(error), repr(error), repr(error.args), repr(vars(error))]
    return "\n".join([*parts, repr(pickle.loads(pickle.dumps(error)))])


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://{USER}:{QUOTED}@127.0.0.1:{{port}}/postgres",
        f"postgres://{USER}@127.0.0.1:{{port}}/postgres?password={QUOTED}",
        f"postgresql+psycopg://{USER}:{QUOTED}@127.0.0.1:1/postgres",
        f"postgresql://{USER}:{QUOTED}@127.0.0.1:{{port}}/nowhere",
        f"postgresql://{USER}:{QUOTED}@127.0.0.1:{{port}}/postgres?sslmode=nonsense",
        f"postgresql://{USER}:{QUOTED}@127.0.0.1:{{port}}/postgres?no_such_option={QUOTED}",
        f"postgresql://{USER}:{QUOTED}@no-such-host.invalid/postgres",
    ],
)
def test_failed_connection_does_not_show_the_password(
    postgres: PostgresServer, logs: pytest.LogCaptureFixture, url: str
) -> None:
    url = url.replace("{port}", str(postgres.port))
    with pytest.raises(CatalogError) as error:
        Catalog.open(url)
    told = shown(error.value) + logs.text
    for form in (SECRET, QUOTED, "hunter2"):
        assert form not in told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@really@host/db",
        "postgresql://us/er:hunter2@host/db",
        "postgresql://user:hunter2@host:port/db",
        "user:hunter2@host/db",
        "mysql://user:hunter2@host/db",
        "postgresql+psycopg2://user:hunter2@host/db",
        "sqlite://user:hunter2@host/db",
        "sqlite:///:memory:?password=hunter2",
        "hunter2",
        "",
        b"postgresql://user:hunter2@host/db",
        None,
    ],
)
def test_url_that_is_not_understood_is_not_repeated(url: str, logs: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="catalog") as error:
        Catalog.open(url)
    for text in (str(error.value), repr(error.value), repr(error.value.__context__), logs.text):
        assert "hunter2" not in text


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x.db?uri=true"])
def test_catalog_that_would_be_forgotten_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="needs a file that stays: write sqlite:///path"):
        Catalog.open(url)


@pytest.mark.parametrize(
    "query", ["isolation_level=DEFERRED", "uri=true", "timeout=x", "timeout=-1", "timeout=nan", "a=b"]
)
def test_option_that_the_catalog_could_not_rely_on_is_refused(tmp_path: Path, query: str) -> None:
    with pytest.raises(ValueError, match="takes one option"):
        Catalog.open(f"sqlite:///{tmp_path}/catalog.db?{query}")
    assert list(tmp_path.iterdir()) == []


def test_open_catalog_does_not_show_its_password(postgres: PostgresServer, logs: pytest.LogCaptureFixture) -> None:
    with Catalog.open(postgres.schema()) as catalog:
        catalog.register("job", kind="sql", definition={})
        catalog.take("job")
        told = [
            repr(catalog),
            str(catalog),
            f"{catalog}",
            repr(catalog._session.address),
            repr(catalog._session._engine),
        ]
        assert told[0] == f"Catalog(postgresql://127.0.0.1:{postgres.port}/postgres)"
        with postgres.down(), pytest.raises(CatalogError) as error:
            catalog.jobs()
    for text in (*told, shown(error.value), logs.text):
        assert postgres.password not in text


def test_values_do_not_show_in_the_log_of_statements(catalog_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sqlalchemy.engine")
    with Catalog.open(catalog_url) as catalog:
        catalog.register("job", kind="sql", definition={"text": "hunter2"})
        mine = catalog.take("job")
        row = CheckpointRow(catalog.next_checkpoint_id("job", mine), 1)
        catalog.commit_job_checkpoint("job", mine, row, {"s": {"position": "hunter2"}})
    assert "INSERT INTO lsmstate_source_checkpoints" in caplog.text
    assert "hunter2" not in caplog.text


def test_credentials_of_a_definition_are_not_stored(tmp_path: Path) -> None:
    definition = {
        "sink": {"url": "postgresql://writer:hunter2@host/db", "table": "t"},
        "source": ["jdbc:postgresql://h/db?user=u&password=hunter2&x=1", {"kafka.sasl.jaas.config": "hunter2"}],
        "sql": "CREATE STREAMING TABLE t WITH ('db.password' = 'hunter2', 'x' = '1') AS SELECT * FROM a",
        "PASSWORD": "hunter2",
    }
    with Catalog.open(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        job = catalog.register("job", kind="sql", definition=definition, comment="see http://me:hunter2@wiki/")
        mine = catalog.take("job")
        row = CheckpointRow(
            catalog.next_checkpoint_id("job", mine), 1, manifest="s3://k:hunter2@b/1", note="a://:hunter2@b"
        )
        catalog.commit_job_checkpoint("job", mine, row, {})
        catalog.commit_job_checkpoint("job", mine, row, {})  # the same, though it is stored without
        assert not catalog.register("job", kind="sql", definition=definition).changed
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        assert "hunter2" not in "\n".join(connection.iterdump())
    assert job.definition == {
        "sink": {"url": "postgresql://writer:***@host/db", "table": "t"},
        "source": ["jdbc:postgresql://h/db?user=u&password=***&x=1", {"kafka.sasl.jaas.config": "***"}],
        "sql": "CREATE STREAMING TABLE t WITH ('db.password' = '***', 'x' = '1') AS SELECT * FROM a",
        "PASSWORD": "***",
    }


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM l JOIN r ON l.password = r.secret AND l.token = 'x'",
        "s3://bucket/path/to:file",
        "http://host:8080/path?page=1",
        "a:b@c",
        "key",
        "x" * 1_000_000,
        "a://b:" * 20_000,
        "?" + "password" * 100_000,
    ],
    ids=["sql", "path", "port", "no url", "word", "long", "long urls", "long query"],
)
def test_what_is_no_credential_stays_as_it_is(text: str) -> None:
    assert without_credentials(text) == text
    assert without_credentials({"tokenizer": [text, 5, None]}) == {"tokenizer": [text, 5, None]}
