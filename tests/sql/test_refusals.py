"""What is refused: said clearly, with its place, and before anything is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lsmstate
from lsmstate.sql import Session, SqlError
from tests.support.sql_tables import catalog, named, put, rows, streaming

GOOD = "i.ad_id = c.ad_id AND c.ts BETWEEN i.ts AND i.ts + INTERVAL '5 seconds'"
SELECT = f"SELECT i.n FROM impressions i JOIN clicks c ON {GOOD}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sql")
    put(root / "in/impressions", rows(1, 20), files=1)
    put(root / "in/clicks", rows(2, 20), files=1)
    other = rows(3, 20)
    put(root / "in/texts", other.set_column(0, "ad_id", other.column("ad_id").cast(pa.string())), files=1)
    put(root / "in/nanos", rows(4, 20, pa.timestamp("ns")), files=1)
    moments = pa.array(range(20), pa.timestamp("ns"))
    put(root / "in/moments", other.set_column(0, "ad_id", moments), files=1)
    (root / "in/empty").mkdir()
    return root


def refused(root: Path, script: str) -> SqlError:
    """The error of a script, which has changed nothing."""
    before = sorted(path for path in root.rglob("*"))
    with pytest.raises(SqlError) as caught:
        Session(catalog(root), root / "state").execute(script)
    assert sorted(path for path in root.rglob("*")) == before, "something was written"
    error = caught.value
    assert str(error).startswith(f"line {error.line}, column {error.column}: ")
    return error


@pytest.mark.parametrize("interval", ["abc", "0", "-5", "5.5", "", " 5", "5s", "1e3", "99999999999", "\u0665"])
def test_bad_interval_is_named_with_what_is_expected(interval: str, root: Path) -> None:
    script = named(root, "impressions", "clicks") + streaming(
        root, "joined", SELECT, f"'checkpoint.interval' = '{interval}'"
    )
    error = refused(root, script)
    assert "'checkpoint.interval'" in str(error)
    assert repr(interval) in str(error)
    assert "whole milliseconds from 1" in str(error)
    assert "'5000'" in str(error)
    assert (error.line, error.column) == (3, script.splitlines()[2].index(f"= '{interval}'") + 3)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("'path' = 'x'", "'connector' is missing: it is 'parquet' or 'database'"),
        ("'connector' = 'kafka', 'path' = 'x'", "no connector 'kafka' here: it is 'parquet' or 'database'"),
        ("'connector' = 'parquet'", "'path' is missing"),
        ("'connector' = 'parquet', 'path' = ''", "must not be empty"),
        ("'connector' = 'parquet', 'path' = 's3://bucket/x'", "not a URL"),
        (
            "'connector' = 'parquet', 'path' = 'x', 'checkpoint_interval' = '5'",
            "'checkpoint_interval' is unknown here; the known ones are 'connector', 'path', 'checkpoint.interval'",
        ),
        ("'connector' = 'parquet', 'path' = 'x', 'path' = 'y'", "'path' is given twice"),
        (
            "'connector' = 'parquet', 'path' = 'x', 'ttl' = 'long'",
            "'long' is no span of time; write it like '10 seconds'",
        ),
        ("'connector' = 'parquet', 'path' = 'x', 'ttl' = '1 month'", "no span of time"),
        ("'connector' = 'parquet', 'path' = 'x', 'ttl' = '1 hour'", "leave one of the two out"),
        ("'connector' = 'database', 'url' = 'sqlite:///x.db'", "'table' is missing"),
        ("'connector' = 'database', 'url' = 'oops', 'table' = 't'", "no URL of a catalog|sqlite:///"),
        ("'connector' = 'database', 'url' = 'sqlite:///x.db', 'table' = 'a-b'", "no name of a table"),
        ("'connector' = 'database', 'url' = 'sqlite:///x.db', 'table' = 't', 'path' = 'x'", "'path' is unknown"),
    ],
)
def test_wrong_options_of_a_streaming_table_are_named(options: str, told: str, root: Path) -> None:
    error = refused(
        root, f"{named(root, 'impressions', 'clicks')}CREATE STREAMING TABLE x WITH ({options}) AS {SELECT}"
    )
    assert any(one in str(error) for one in told.split("|")), error


def test_a_password_is_refused_and_not_shown(root: Path) -> None:
    url = "postgresql://me:hunter2@host/db"
    options = f"'connector' = 'database', 'url' = '{url}', 'table' = 't'"
    error = refused(
        root, f"{named(root, 'impressions', 'clicks')}CREATE STREAMING TABLE x WITH ({options}) AS {SELECT}"
    )
    assert "keeps no passwords" in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("'path' = 'x', 'time' = 'ts'", "'connector' is missing: it is 'parquet'"),
        ("'connector' = 'database', 'path' = 'x', 'time' = 'ts'", "no connector 'database' here"),
        ("'connector' = 'parquet', 'path' = '{root}/in/clicks'", "'time' is missing"),
        ("'connector' = 'parquet', 'time' = 'ts'", "'path' is missing"),
        ("'connector' = 'parquet', 'path' = '{root}/in/empty', 'time' = 'ts'", "holds no parquet file"),
        ("'connector' = 'parquet', 'path' = '{root}/in/nowhere', 'time' = 'ts'", "is not a directory"),
        ("'connector' = 'parquet', 'path' = '{root}/in/clicks', 'time' = 'when'", "no column 'when'; it has ad_id"),
        ("'connector' = 'parquet', 'path' = '{root}/in/clicks', 'time' = 'site'", "is string; write it as timestamp"),
        (
            "'connector' = 'parquet', 'path' = '{root}/in/nanos', 'time' = 'ts'",
            "timestamp[ns]; write it as timestamp('us')",
        ),
        ("'connector' = 'parquet', 'path' = '{root}/in/clicks', 'time' = 'ts', 'delay' = '5'", "no span of time"),
        ("'connector' = 'parquet', 'path' = '{root}/in/clicks', 'time' = 'ts', 'delay' = '-5 s'", "too short"),
        ("'connector' = 'parquet', 'path' = '{root}/in/clicks', 'time' = 'ts', 'follow' = 'yes'", "neither 'true' nor"),
        ("'connector' = 'parquet', 'path' = '{root}/in/clicks', 'time' = 'ts', 'ttl' = '1 h'", "'ttl' is unknown here"),
    ],
)
def test_wrong_options_of_a_table_are_named(options: str, told: str, root: Path) -> None:
    assert told in str(refused(root, f"CREATE TABLE t WITH ({options.format(root=root)})"))


@pytest.mark.parametrize(
    ("select", "at", "told"),
    [
        ("SELECT * FROM impressions i JOIN nobody c ON i.a = c.a", "nobody", "no table 'nobody'; name it with CREATE"),
        ("SELECT * FROM impressions", "*", "exactly two tables, and here are 1"),
        (f"{SELECT} JOIN clicks d ON d.n = c.n", "clicks d", "exactly two tables, and here are 3"),
        ("SELECT * FROM (SELECT 1) i JOIN clicks c ON i.n = c.n", "1) i", "only tables can be joined"),
        ("SELECT * FROM impressions JOIN impressions ON 1 = 1", "impressions ON", "both tables are called"),
        ("SELECT * FROM impressions i CROSS JOIN clicks c", "clicks", "CROSS JOIN is not supported; what is: [INNER]"),
        ("SELECT * FROM impressions i NATURAL JOIN clicks c", "clicks", "NATURAL JOIN is not supported"),
        ("SELECT * FROM impressions i ASOF JOIN clicks c ON i.n = c.n", "clicks", "ASOF JOIN is not supported"),
        ("SELECT * FROM impressions i RIGHT SEMI JOIN clicks c ON i.n = c.n", "clicks", "RIGHT SEMI JOIN is not"),
        ("SELECT * FROM impressions i JOIN clicks c USING (ad_id)", "clicks", "a join needs ON"),
        ("SELECT * FROM impressions i, clicks c", "clicks", "a join needs ON"),
        ("SELECT * FROM impressions i JOIN clicks c ON i.n < c.n", "i.n <", "at least one equal key"),
        ("SELECT * FROM impressions i JOIN clicks c ON i.n = c.n", "i.n =", "a bound on the times, or its state would"),
        (
            "SELECT * FROM impressions i JOIN clicks c ON i.n = c.n AND c.ts >= i.ts",
            "i.n =",
            "how much later than i.ts",
        ),
        (
            "SELECT * FROM impressions i JOIN clicks c ON i.n = c.n AND c.ts <= i.ts",
            "i.n =",
            "how much earlier than i.ts",
        ),
        (
            "SELECT * FROM impressions i JOIN clicks c ON i.n = c.n AND c.ts < i.ts AND c.ts > i.ts",
            "i.n =",
            "no times fulfil",
        ),
        (
            "SELECT * FROM impressions i JOIN clicks c ON i.n = c.n AND c.ts - i.ts < INTERVAL '1 month'",
            "c.ts - i.ts",
            "no span of time",
        ),
        (
            "SELECT * FROM impressions i JOIN clicks c ON i.n = c.n AND c.ts BETWEEN i.ts AND i.ts + 5",
            "5",
            "only + and - of INTERVAL",
        ),
        ("SELECT * FROM impressions i JOIN clicks c ON i.n = c.n AND c.ts <> i.ts", "c.ts", "times are bounded by"),
        ("SELECT * FROM impressions i JOIN clicks c ON i.n = c.n AND c.ts + i.ts > c.ts", "c.ts", "one time of each"),
        (
            "SELECT * FROM impressions i JOIN clicks c ON i.ad_id = c.site AND c.ts = i.ts",
            "i.ad_id",
            "cannot be compared",
        ),
        (
            "SELECT * FROM impressions i JOIN texts c ON i.ad_id = c.ad_id AND c.ts = i.ts",
            "i.ad_id",
            "cannot be compared",
        ),
        (
            "SELECT * FROM moments i JOIN moments c ON i.ad_id = c.ad_id AND c.ts = i.ts",
            "i.ad_id",
            "which can be no key: cast it to timestamp[us]",
        ),
        (
            "SELECT * FROM impressions i JOIN clicks c ON i.nope = c.n AND c.ts = i.ts",
            "i.nope",
            "no column 'nope': i has",
        ),
        ("SELECT * FROM impressions i JOIN clicks c ON x.n = c.n AND c.ts = i.ts", "x.n", "no table is called 'x'"),
        (f"SELECT nope FROM impressions i JOIN clicks c ON {GOOD}", "nope", "no column 'nope': i has ad_id"),
        (f"SELECT n FROM impressions i JOIN clicks c ON {GOOD}", "n FROM", "may be i.n or c.n: say which"),
        (
            f"SELECT i.n, c.n FROM impressions i JOIN clicks c ON {GOOD}",
            "c.n",
            "two columns of the result are called 'n'",
        ),
        (f"SELECT i.n + 1 FROM impressions i JOIN clicks c ON {GOOD}", "i.n + 1", "columns can be selected"),
        (f"SELECT count(*) FROM impressions i JOIN clicks c ON {GOOD}", "count", "columns can be selected"),
        (f"SELECT * EXCEPT (n) FROM impressions i JOIN clicks c ON {GOOD}", "*", "* stands alone"),
        (f"SELECT x.* FROM impressions i JOIN clicks c ON {GOOD}", "x.*", "no table is called 'x'"),
        (f"SELECT c.n FROM impressions i LEFT SEMI JOIN clicks c ON {GOOD}", "c.n", "gives columns of i only"),
        (f"SELECT c.* FROM impressions i LEFT ANTI JOIN clicks c ON {GOOD}", "c.*", "gives columns of i only"),
        (f"{SELECT} WHERE c.nope = 1", "c.nope", "no column 'nope'"),
        (f"{SELECT} WHERE c.n = 'a'", "c.n = 'a'", "cannot be decided"),
        (f"{SELECT} WHERE c.ts > '2026-01-01 nonsense'", "c.ts > '", "cannot be decided"),
        (f"{SELECT} WHERE abs(c.n) = 1", "abs(", "not supported in a comparison; what is: columns"),
        (f"{SELECT} WHERE c.site LIKE 's%'", "c.site LIKE", "not supported in a condition; what is: comparisons"),
        (f"{SELECT} WHERE c.n = (SELECT 1)", "1)", "not supported in a comparison"),
        (f"{SELECT} GROUP BY i.n", "i.n", "GROUP is not supported; what is: SELECT columns FROM"),
        (f"{SELECT} ORDER BY i.n", "i.n", "ORDER is not supported"),
        (f"{SELECT} LIMIT 5", "i.n", "LIMIT is not supported"),
        (f"SELECT DISTINCT i.n FROM impressions i JOIN clicks c ON {GOOD}", "i.n", "DISTINCT is not supported"),
        (f"{SELECT} UNION {SELECT}", "SELECT", "one SELECT"),
        (
            f"SELECT i.n FROM lake.impressions i JOIN clicks c ON {GOOD}",
            "lake",
            "without anything",
        ),
        ("SELECT FROM WHERE", "WHERE", "Expected table name but got 'WHERE'"),
        (f"SELECT i.n AS FROM FROM impressions i JOIN clicks c ON {GOOD} AND", "", "cannot be read"),
    ],
)
def test_what_a_select_cannot_do_is_refused_with_its_place(select: str, at: str, told: str, root: Path) -> None:
    script = named(root, "impressions", "clicks", "texts", "moments") + streaming(root, "joined", select)
    error = refused(root, script)
    assert told in str(error)
    line = script.splitlines()[4]
    if at:
        starts = [n + 1 for n in range(len(line)) if line.startswith(at, n)]
        assert (error.line, error.column in starts) == (5, True), (error, starts)


def test_a_script_that_is_wrong_in_its_last_statement_changes_nothing(root: Path) -> None:
    script = named(root, "impressions", "clicks") + streaming(root, "joined", SELECT)
    error = refused(root, f"{script}CREATE STREAMING TABLE other;")
    assert error.line == 4


def test_rows_cannot_go_where_they_come_from_nor_where_something_lies(root: Path, tmp_path: Path) -> None:
    script = named(root, "impressions", "clicks")
    into = f"CREATE STREAMING TABLE x WITH ('connector' = 'parquet', 'path' = '{root}/in/clicks') AS {SELECT}"
    assert "which table 'clicks' reads" in str(refused(root, script + into))
    session = Session(catalog(tmp_path), tmp_path / "state")
    with pytest.raises(SqlError, match="is no empty directory"):
        session.execute(script + into.replace("in/clicks", "in/texts"))


def test_a_table_is_named_once(root: Path) -> None:
    script = named(root, "clicks")
    assert "exists already in this session" in str(refused(root, script + script))
    again = script.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
    assert len(Session(catalog(root), root / "state").execute(script + again)) == 2
    assert "read from; take another name" in str(
        refused(root, named(root, "impressions", "clicks") + streaming(root, "clicks", SELECT))
    )


def test_a_deeply_nested_condition_is_refused(root: Path) -> None:
    where = "(" * 5000 + "c.n = 1" + ")" * 5000
    assert "line 3" in str(
        refused(root, named(root, "impressions", "clicks") + streaming(root, "x", f"{SELECT} WHERE {where}"))
    )


def test_a_huge_script_is_refused() -> None:
    with pytest.raises(SqlError, match="characters"):
        Session().execute("-- " + "x" * 1_000_000)


def test_importing_lsmstate_does_not_import_sqlglot() -> None:
    import subprocess
    import sys

    code = "import sys, lsmstate, lsmstate.cli.entry; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert lsmstate.SqlError is SqlError
