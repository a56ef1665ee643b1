"""Statements: how they are read, and what they mean before anything runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsmstate.join.kinds import INSTANT, INTERVAL, Kind
from lsmstate.sql import Session, SqlError
from lsmstate.sql.plan import Plan, plan_of
from lsmstate.sql.spans import span_us
from lsmstate.sql.statements import CreateStreamingTable, CreateTable, DropStreamingTable, ShowStreamingTables, parse
from lsmstate.sql.table import Table
from lsmstate.sql.text import Text
from tests.support.sql_tables import catalog, rows

TABLES = {name: Table(name, {"path": name, "time": "ts"}, rows(1, 10).schema) for name in ("a", "b")}
NUMBERS = {name: Table(name, {"path": name, "time": "ts"}, rows(1, 10, pa.int64()).schema) for name in ("a", "b")}
SECOND = 1_000_000


def planned(select: str, tables: dict[str, Table] = TABLES, **options: str) -> Plan:
    text = Text(f"CREATE STREAMING TABLE t WITH ('x' = 'y') AS {select}")
    (statement,) = parse(text)
    assert isinstance(statement, CreateStreamingTable)
    return plan_of(text, statement.select, tables, options)


def kind_of(on: str, join: str = "JOIN", tables: dict[str, Table] = TABLES, **options: str) -> Kind:
    return planned(f"SELECT a.n FROM a {join} b ON {on}", tables, **options).make_join().shape.kind


@pytest.mark.parametrize(
    ("join", "how"),
    [
        ("JOIN", "inner"),
        ("INNER JOIN", "inner"),
        ("left join", "left"),
        ("LEFT OUTER JOIN", "left"),
        ("RIGHT JOIN", "right"),
        ("RIGHT OUTER JOIN", "right"),
        ("FULL JOIN", "full"),
        ("FULL OUTER JOIN", "full"),
        ("LEFT SEMI JOIN", "left_semi"),
        ("SEMI JOIN", "left_semi"),
        ("LEFT ANTI JOIN", "left_anti"),
        ("ANTI JOIN", "left_anti"),
    ],
)
def test_every_type_of_join_is_read(join: str, how: str) -> None:
    assert kind_of("a.n = b.n AND a.ts = b.ts", join) == Kind(INSTANT, how)


@pytest.mark.parametrize(
    ("times", "lower", "upper"),
    [
        ("b.ts BETWEEN a.ts - INTERVAL '5 seconds' AND a.ts + INTERVAL '20 seconds'", -5 * SECOND, 20 * SECOND),
        ("a.ts BETWEEN b.ts - INTERVAL '20 seconds' AND b.ts + INTERVAL '5 seconds'", -5 * SECOND, 20 * SECOND),
        ("b.ts >= a.ts AND b.ts <= a.ts + INTERVAL '1' HOUR", 0, 3600 * SECOND),
        ("a.ts <= b.ts AND a.ts + INTERVAL 1 HOUR >= b.ts", 0, 3600 * SECOND),
        ("b.ts > a.ts AND b.ts < a.ts + INTERVAL '1 second'", 1, SECOND - 1),
        ("b.ts - a.ts <= INTERVAL '2 minutes' AND a.ts - b.ts <= INTERVAL '1 minute'", -60 * SECOND, 120 * SECOND),
        ("(b.ts - INTERVAL '1 s') - a.ts BETWEEN -INTERVAL '1 s' AND INTERVAL '1 hour 30 minutes'", 0, 5401 * SECOND),
        ("INTERVAL '3 ms' + a.ts = b.ts", 3000, 3000),
        ("b.ts BETWEEN a.ts AND a.ts", 0, 0),
        ("b.ts >= a.ts AND b.ts >= a.ts + INTERVAL '1 s' AND b.ts <= a.ts + INTERVAL '3 s'", SECOND, 3 * SECOND),
    ],
)
def test_every_form_of_the_interval_is_read(times: str, lower: int, upper: int) -> None:
    assert kind_of(f"{times} AND b.n = a.n") == Kind(INTERVAL, "inner", lower, upper)


def test_equal_times_are_an_instant_and_narrow_an_interval() -> None:
    assert kind_of("a.n = b.n AND b.ts = a.ts AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1 s'") == Kind(INSTANT)


def test_whole_numbers_are_microseconds_where_times_are_numbers() -> None:
    on = "a.n = b.n AND b.ts BETWEEN a.ts - 7 AND a.ts + (3 + 4)"
    assert kind_of(on, tables=NUMBERS) == Kind(INTERVAL, "inner", -7, 7)


def test_a_ttl_is_an_interval_on_both_ends() -> None:
    assert kind_of("a.n = b.n", ttl="1 minute") == Kind(INTERVAL, "inner", -60 * SECOND, 60 * SECOND)


def test_only_columns_that_are_asked_for_go_into_the_join() -> None:
    plan = planned(
        "SELECT a.n AS x FROM a JOIN b ON a.ad_id = b.ad_id AND a.ts = b.ts AND b.price > 2 WHERE a.site = 's'"
    )
    assert [[column for column, _ in one.columns] for one in plan.inputs] == [
        ["ad_id", "site", "ts", "n"],
        ["ad_id", "ts", "price"],
    ]
    assert plan.selected == (("a.n", "x"),)


def test_a_key_column_that_is_compared_twice_is_a_condition_too() -> None:
    plan = planned("SELECT a.n FROM a JOIN b ON a.ad_id = b.ad_id AND a.ad_id = b.n AND a.ts = b.ts")
    left, right = plan.make_join().shape.sides
    assert (list(left.keys), list(right.keys)) == (["a.ad_id"], ["b.ad_id"])
    assert plan.make_join().shape.condition is not None


def test_statements_are_read_in_their_order_whatever_their_case() -> None:
    script = """
    -- a comment; with a semicolon
    create table T1 comment 'it''s' with ('a;b' = 'c''d');;
    Create Streaming Table If Not Exists "t2" With ('x' = 'y') Comment 'later' As Select a.n From a Join b On a.n = b.n;
    drop streaming table if exists t3; show streaming tables;"""
    first, second, third, fourth = parse(Text(script))
    assert isinstance(first, CreateTable)
    assert (first.name, first.options[0].name, first.options[0].value) == ("t1", "a;b", "c'd")
    assert isinstance(second, CreateStreamingTable)
    assert (second.name, second.comment, second.if_not_exists) == ("t2", "later", True)
    assert second.sql.startswith("Create Streaming Table")
    assert second.sql.endswith("a.n = b.n")
    assert isinstance(third, DropStreamingTable)
    assert (third.name, third.if_exists) == ("t3", True)
    assert isinstance(fourth, ShowStreamingTables)
    assert parse(Text(" -- nothing\n")) == []


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 seconds", 10 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("-1.5 s", -1_500_000),
        ("2 days", 172_800 * SECOND),
    ],
)
def test_spans_are_read(text: str, us: int) -> None:
    assert span_us(text) == us


@pytest.mark.parametrize(
    "text", ["", " ", "5", "seconds", "5 parsecs", "1 month", "0.1 us", "9999999999 weeks", "5 s x"]
)
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"span of time|microsecond|longer"):
        span_us(text)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("SELECT 1", "'SELECT' begins no statement that is known: CREATE TABLE, CREATE STREAMING TABLE"),
        ("INSERT INTO x VALUES (1)", "'INSERT' begins no statement"),
        ("CREATE VIEW x AS SELECT 1", "'CREATE' begins no statement"),
        ("DROP TABLE x", "'DROP' begins no statement"),
        ("SHOW TABLES", "'SHOW' begins no statement"),
        ("CREATE TABLE", "expected the name of a table"),
        ("CREATE TABLE 'x' WITH ('a' = 'b')", "expected the name of a table"),
        ("CREATE TABLE \"a b\" WITH ('a' = 'b')", "expected the name of a table"),
        ("CREATE TABLE x (a INT) WITH ('a' = 'b')", "leave the list of columns out"),
        ("CREATE TABLE x", "expected WITH"),
        ("CREATE TABLE x WITH 'a'", "expected ("),
        ("CREATE TABLE x WITH (a = 'b')", "expected an option in quotes"),
        ("CREATE TABLE x WITH ('a' 'b')", "expected ="),
        ("CREATE TABLE x WITH ('a' = 5)", "expected the value of 'a' in quotes"),
        ("CREATE TABLE x WITH ('a' = 'b'", "expected , or ), and here is the end"),
        ("CREATE TABLE x WITH ('a' = 'b') AS SELECT 1", "expected ; or the end, not 'AS'"),
        ("CREATE STREAMING TABLE x WITH ('a' = 'b')", "expected AS SELECT"),
        ("CREATE STREAMING TABLE x WITH ('a' = 'b') AS VALUES (1)", "expected SELECT"),
        ("CREATE STREAMING TABLE x COMMENT 5 WITH ('a' = 'b') AS SELECT 1", "expected a comment"),
        ("CREATE STREAMING TABLE x AS SELECT 1", "expected WITH"),
        ("CREATE TABLE x WITH ('a' = 'b", "a quote or a comment left open"),
        ("DROP STREAMING TABLE", "expected the name of a table"),
        ("DROP STREAMING TABLE a b", "expected ; or the end"),
    ],
)
def test_what_is_no_statement_is_refused(script: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(SqlError) as caught:
        Session(catalog(tmp_path), tmp_path / "state").execute(script)
    assert told in str(caught.value)
    assert caught.value.line == 1
    assert not (tmp_path / "state").exists()
