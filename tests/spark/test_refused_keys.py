"""Keys that cannot be compared are refused before the query starts, in words that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lsmstate import SchemaError
from lsmstate.spark import stream_join

pytestmark = pytest.mark.spark
ANSI = "spark.sql.ansi.enabled"


def refused(spark: SparkSession, path: Path, left: str, right: str, *others: str) -> str:
    """What is said of two keys."""
    (path / "in").mkdir(exist_ok=True)
    stream = spark.readStream.schema("id bigint, name string, ts timestamp, day date").parquet(str(path / "in"))
    inputs = [stream.selectExpr("ts", f"{key} as k", *others) for key in (left, right)]
    with pytest.raises(SchemaError) as raised:
        stream_join(
            *inputs,
            on="k",
            time=("ts", "ts"),
            within=("-5 seconds", "5 seconds"),
            watermark=("1 second", "1 second"),
            state=path / "state",
        )
    assert not (path / "state").exists()
    return str(raised.value)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("collate(name, 'UNICODE_CI')", "use collate(k, 'UTF8_BINARY')"),
        ("array(struct(name collate UTF8_LCASE as n))", "its elements: its field 'n' is string collate UTF8_LCASE"),
        ("map(id, name)", "is a map, and Spark cannot compare maps; use array_sort(map_entries(k))"),
        ("make_interval(1)", "left: key 'k' is interval, which Spark cannot compare; cast it"),
        ("parse_json(name)", "left: key 'k' is variant, which Spark cannot compare; cast it"),
        ("null", "left: key 'k' is void; cast it to the type of the other side's key"),
    ],
)
def test_key_of_a_type_that_cannot_be_compared_is_refused(
    key: str, words: str, spark: SparkSession, tmp_path: Path
) -> None:
    assert words in refused(spark, tmp_path, key, key)


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ("id", "day", "the keys 'k' (bigint) and 'k' (date) cannot be compared; cast one of them"),
        ("id", "array(id)", "the keys 'k' (bigint) and 'k' (array<bigint>) cannot be compared"),
        ("id > 1", "id", "the keys 'k' (boolean) and 'k' (bigint) cannot be compared"),
    ],
)
def test_keys_of_types_that_do_not_meet_are_refused(
    left: str, right: str, words: str, spark: SparkSession, tmp_path: Path
) -> None:
    assert words in refused(spark, tmp_path, left, right)


@pytest.mark.parametrize(("left", "right"), [("name", "id"), ("day", "name"), ("array(name)", "array(id)")])
def test_texts_meet_nothing_else_without_ansi(left: str, right: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(ANSI, False)
    try:
        assert "cast one of them" in refused(spark, tmp_path, left, right)
    finally:
        spark.conf.set(ANSI, True)


def test_a_column_with_a_name_of_ours_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    words = refused(spark, tmp_path, "id", "id", "id as __own_k")
    assert words == "names that begin with '__' are lsmstate's own: rename __own_k"
