"""What streaming tables give: what DuckDB makes of the same SELECT over the same rows."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lsmstate.sql import Session
from tests.support.sql_tables import by_duckdb, catalog, named, put, rows, streaming, written

WITHIN = "c.ts BETWEEN i.ts - INTERVAL '5 seconds' AND i.ts + INTERVAL '20 seconds'"
ON = f"i.ad_id = c.ad_id AND {WITHIN}"


def ran(root: Path, select: str, more: str = "", options: str = "'checkpoint.interval' = '20'") -> list[str]:
    """The rows of one streaming table over impressions and clicks. more: options of those; options: of its own."""
    session = Session(catalog(root), root / "state")
    session.execute(named(root, "impressions", "clicks", more=more) + streaming(root, "joined", select, options))
    outcome = session.run()["joined"]
    if outcome.error is not None:
        raise outcome.error
    return written(root, "joined")


@pytest.mark.parametrize("on", [ON, "i.ad_id = c.ad_id AND i.ts = c.ts"], ids=["interval", "instant"])
@pytest.mark.parametrize("how", ["INNER", "LEFT", "RIGHT", "FULL OUTER"])
def test_joins_give_what_duckdb_gives(how: str, on: str, root: Path) -> None:
    select = f"SELECT i.ad_id, c.ad_id AS clicked, i.n, c.n AS m FROM impressions i {how} JOIN clicks c ON {on}"
    assert ran(root, select) == by_duckdb(root, select)


@pytest.mark.parametrize("on", [ON, "i.ad_id = c.ad_id AND i.ts = c.ts"], ids=["interval", "instant"])
@pytest.mark.parametrize("how", ["LEFT SEMI", "LEFT ANTI"])
def test_semi_and_anti_joins_give_what_duckdb_gives(how: str, on: str, root: Path) -> None:
    select = f"SELECT * FROM impressions i {how} JOIN clicks c ON {on}"
    assert ran(root, select) == by_duckdb(root, select)


@pytest.mark.parametrize(
    "times",
    [
        WITHIN,
        "c.ts - i.ts BETWEEN INTERVAL '-5' SECOND AND INTERVAL 20 SECOND",
        "c.ts >= i.ts - INTERVAL '5 seconds' AND c.ts <= i.ts + INTERVAL '20 seconds'",
        "i.ts - INTERVAL '5 seconds' <= c.ts AND i.ts >= c.ts - INTERVAL '20 seconds'",
        "c.ts > i.ts AND i.ts + INTERVAL '2 seconds' > c.ts",
        "i.ts BETWEEN c.ts - INTERVAL '1 minute' AND c.ts",
        "c.ts = i.ts + INTERVAL '1 second'",
    ],
)
def test_every_form_of_the_interval_means_what_it_means_to_duckdb(times: str, root: Path) -> None:
    select = f"SELECT i.n, c.n AS m FROM impressions i FULL JOIN clicks c ON {times} AND c.ad_id = i.ad_id"
    assert ran(root, select) == by_duckdb(root, select)


def test_keys_of_several_columns_meet(root: Path) -> None:
    select = f"SELECT i.n, c.n AS m, c.site FROM impressions i LEFT JOIN clicks c ON {ON} AND c.site = i.site"
    assert ran(root, select) == by_duckdb(root, select)


@pytest.mark.parametrize("how", ["INNER", "LEFT", "FULL", "LEFT SEMI", "LEFT ANTI"])
@pytest.mark.parametrize("condition", ["c.price > i.price", "(c.price < 5 OR i.site IN ('s0', 's1'))"])
def test_further_conditions_hold_for_the_pair(how: str, condition: str, root: Path) -> None:
    columns = "i.n" if how.startswith("LEFT ") else "i.n, c.n AS m"
    select = f"SELECT {columns} FROM impressions i {how} JOIN clicks c ON {ON} AND {condition}"
    assert ran(root, select) == by_duckdb(root, select)


@pytest.mark.parametrize(
    "where",
    [
        "c.price >= 10.5",
        "c.n IS NULL",
        "c.price IS NOT NULL AND NOT (i.site = 's0' OR c.price < 2)",
        "i.site NOT IN ('s0', 's2') AND i.n BETWEEN 5 AND 300",
        "i.ts >= TIMESTAMP '1970-01-01 00:00:20' AND c.n <> i.n AND i.n > -1",
    ],
)
def test_where_is_applied_to_the_result(where: str, root: Path) -> None:
    select = f"SELECT i.n, c.n AS m FROM impressions i LEFT JOIN clicks c ON {ON} WHERE {where}"
    found = ran(root, select)
    assert found == by_duckdb(root, select)
    assert found


def test_star_gives_all_columns_and_names_that_clash_a_suffix(root: Path) -> None:
    put(root / "in/clicks", rows(2, 300).rename_columns(["ad_id", "Site", "ts", "price", "m"]), files=2)
    found = ran(root, f"SELECT * FROM impressions i LEFT JOIN clicks c ON {ON}")
    assert found == by_duckdb(root, f"SELECT i.*, c.* FROM impressions i LEFT JOIN clicks c ON {ON}")
    with duckdb.connect() as db:
        columns = db.sql(f"SELECT * FROM '{root}/out/joined/*.parquet'").columns
    assert columns == ["ad_id", "site", "ts", "price", "n", "ad_id_right", "Site_right", "ts_right", "price_right", "m"]


def test_a_table_meets_itself(root: Path) -> None:
    on = "a.ad_id = b.ad_id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '3 seconds'"
    select = f"SELECT a.n, b.n AS later FROM clicks a JOIN clicks AS b ON {on} WHERE a.n <> b.n"
    assert ran(root, select) == by_duckdb(root, select)


def test_names_are_found_whatever_their_case_and_without_a_table_where_they_are_unique(root: Path) -> None:
    put(root / "in/clicks", rows(2, 300).rename_columns(["Ad", "Place", "When", "Cost", "M"]), files=2)
    on = "AD_ID = ad AND cLICKS.when BETWEEN ts AND ts + INTERVAL '9 seconds'"
    select = f'SELECT n, m AS "The M" FROM Impressions JOIN clicks ON {on}'
    script = named(root, "impressions", "clicks").replace("in/clicks', 'time' = 'ts'", "in/clicks', 'time' = 'When'")
    session = Session(catalog(root), root / "state")
    session.execute(script + streaming(root, "joined", select))
    assert session.run()["joined"].error is None
    assert written(root, "joined") == by_duckdb(root, select.replace("cLICKS.when", 'clicks."When"'))


def test_times_may_be_whole_microseconds(root: Path) -> None:
    for name, seed in (("impressions", 1), ("clicks", 2)):
        put(root / "in" / name, rows(seed, 300, pa.int64()))
    on = "i.ad_id = c.ad_id AND c.ts BETWEEN i.ts - 2000000 AND i.ts"
    select = f"SELECT i.n, c.n AS m FROM impressions i JOIN clicks c ON {on}"
    assert ran(root, select) == by_duckdb(root, select)


def test_times_with_a_zone_are_compared_with_times_of_a_zone(root: Path) -> None:
    for name, seed in (("impressions", 1), ("clicks", 2)):
        put(root / "in" / name, rows(seed, 300, pa.timestamp("us", "UTC")))
    where = "WHERE i.ts > TIMESTAMPTZ '1970-01-01 01:00:10+01:00'"
    select = f"SELECT i.n, c.n AS m FROM impressions i JOIN clicks c ON {ON} {where}"
    found = ran(root, select)
    assert found == by_duckdb(root, select)
    assert found


def test_a_ttl_stands_for_the_bounds(root: Path) -> None:
    select = "SELECT i.n, c.n AS m FROM impressions i LEFT JOIN clicks c ON i.ad_id = c.ad_id"
    within = "AND c.ts BETWEEN i.ts - INTERVAL '3 seconds' AND i.ts + INTERVAL '3 seconds'"
    assert ran(root, select, options="'ttl' = '3 seconds'") == by_duckdb(root, f"{select} {within}")


def test_rows_within_the_delay_are_not_late(root: Path) -> None:
    table = rows(2, 300)
    shaken = table.take(pa.array([n ^ 3 for n in range(300)]))
    put(root / "in/clicks", shaken, files=2)
    select = f"SELECT i.n, c.n AS m FROM impressions i LEFT JOIN clicks c ON {ON}"
    assert ran(root, select, more=", 'delay' = '2 seconds'") == by_duckdb(root, select)


def test_rows_go_into_a_database(root: Path) -> None:
    select = f"SELECT i.n, c.n AS m FROM impressions i LEFT JOIN clicks c ON {ON}"
    script = f"""CREATE STREAMING TABLE joined WITH ('connector' = 'database', 'url' = 'sqlite:///{root}/out.db',
        'table' = 'joined', 'checkpoint.interval' = '20') AS {select}"""
    session = Session(catalog(root), root / "state")
    session.execute(named(root, "impressions", "clicks") + script)
    assert session.run()["joined"].error is None
    with sqlite3.connect(root / "out.db") as db:
        found = sorted(map(repr, db.execute("SELECT n, m FROM joined")))
    assert found == by_duckdb(root, select)
