"""Every Spark type as payload: what a stream brings through the join is what the batch join of the same rows gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lsmstate import SchemaError, read_state
from lsmstate.spark import stream_join
from lsmstate.spark.columns import arrow_type
from tests.support.spark_session import TIME_TYPE

pytestmark = pytest.mark.spark
# each: what a row has that has a value; {n} is a number of the row
TYPES = {
    "byte": "cast({n} % 100 as tinyint)",
    "real": "cast({n} / 8 as float)",
    "dec": "cast({n} / 4 as decimal(38,10))",
    "small_dec": "cast({n} / 4 as decimal(5,2))",
    "raw": "unhex(hex({n}))",
    "day": "date_add(date'1969-12-30', cast({n} as int))",
    "zoned": "timestamp_micros({n} * 1000001)",
    "local": "timestamp_ntz'1960-01-01 00:00:00' + make_dt_interval({n})",
    "letters": "cast({n} as char(7))",
    "words": "cast({n} as varchar(7))",
    "folded": "concat('Ab', {n}) collate UTF8_LCASE",
    "day_time": "make_dt_interval({n}, 1, 2, 3.5)",
    "hours": "cast(make_dt_interval({n}) as interval hour)",
    "months": "make_ym_interval({n}, 3)",
    "years": "cast(make_ym_interval(-{n}) as interval year)",
    "calendar": "make_interval({n}, -2, 3, 4, 5, 6, -7.5)",
    "clock": "cast(make_time(cast({n} % 24 as int), 59, 1.234567) as time(6))",
    "clock_ns": "cast(concat('12:00:00.12345678', {n} % 10) as time(9))",
    "clock_s": "cast(make_time(cast({n} % 24 as int), 59, 1) as time(0))",
    "nothing": "null",
    "free": "parse_json(concat('{{\"n\":', {n}, '}}'))",
    "list": "if({n} % 3 = 0, array(), array({n}, null))",
    "texts": "array('a', null, cast({n} as string), '')",
    "lists": "array(array({n}), null, array())",
    "times": "array(timestamp_micros({n} * 1000001), null)",
    "empty": "array()",
    "pair": "struct({n} as a, cast(null as string) as b, array({n}) as c)",
    "struct_null": "if({n} % 3 = 0, null, struct({n} as a, struct(cast({n} as decimal(9,1)) as x) as b))",
    "map": "map('a', {n}, cast({n} as string), null)",
    "maps": "map(struct({n} as x), array(map({n}, date'2024-02-29'), null))",
    "list_months": "array(make_ym_interval(1, cast({n} as int)), null)",
    "struct_calendar": "struct(make_interval({n}) as i, make_ym_interval({n}) as m)",
    "list_hours": "array(cast(make_dt_interval({n}) as interval day))",
    "list_folded": "array(concat('Ab', {n}) collate UTF8_LCASE)",
    "list_nothing": "array(null, null)",
    "struct_nothing": "struct(null as v, {n} as w)",
    "list_free": "array(parse_json('[1]'), null)",
    "list_clock": "array(make_time(1, 2, 3.5))",
}
ROWS = 40


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that knows TIME, in a zone that is not UTC."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set(TIME_TYPE, "true")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    spark.conf.unset(TIME_TYPE)


def typed(rows: DataFrame, name: str) -> DataFrame:
    """The rows with a column of every type; every fifth row has NULL in it."""
    columns = [
        f"case when id % 5 = {at % 5} then null else {told.format(n='cast(id as int)')} end as {name}_{column}"
        for at, (column, told) in enumerate(TYPES.items())
    ]
    return rows.selectExpr("id as k", f"timestamp_seconds(id) as {name}_ts", *columns)


def as_text(rows: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows.selectExpr(*(f"cast(`{name}` as string)" for name in rows.columns)).collect()]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_columns_of_every_type_are_as_spark_joins_them(how: str, session: SparkSession, tmp_path: Path) -> None:
    for name, first in (("l", 0), ("r", ROWS // 2)):
        session.range(first, first + ROWS).repartition(3).write.parquet(str(tmp_path / name))
    inputs = [typed(session.readStream.schema("id long").parquet(str(tmp_path / n)), n) for n in "lr"]
    joined = stream_join(
        *inputs,
        on="k",
        how=how,
        time=("l_ts", "r_ts"),
        within=("0 seconds", "1 second"),
        watermark=("1000 seconds", "1000 seconds"),
        state=str(tmp_path / "state"),
        partitions=2,
    )
    got: list[tuple[Any, ...]] = []
    query = joined.writeStream.foreachBatch(lambda rows, _: got.extend(as_text(rows)))
    query.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start().awaitTermination(120)

    left, right = (typed(session.read.parquet(str(tmp_path / name)), name) for name in "lr")
    batch = left.join(right, "k")
    assert [field.name for field in joined.schema.fields] == batch.columns
    loose = {f"{side}_{name}" for side in "lr" for name in ("empty", "list_months", "struct_calendar")}
    for ours, theirs in zip(joined.schema.fields, batch.schema.fields, strict=True):
        assert ours.dataType == theirs.dataType or ours.name in loose
        assert ours.dataType.simpleString() == theirs.dataType.simpleString()
    assert sorted(got, key=repr) == sorted(as_text(batch), key=repr)
    assert len(got) == ROWS // 2
    kept = read_state(tmp_path / "state", side="left")
    kept.validate(full=True)
    assert kept.num_rows == ROWS


@pytest.mark.parametrize("partner", [False, True], ids=["alone", "with partners"])
def test_rows_without_partners_have_nulls_of_every_type(partner: bool, session: SparkSession, tmp_path: Path) -> None:
    session.range(0, ROWS).write.parquet(str(tmp_path / "l"))
    session.range(ROWS - 3 if partner else ROWS, ROWS + 1000).write.parquet(str(tmp_path / "r"))
    inputs = [typed(session.readStream.schema("id long").parquet(str(tmp_path / n)), n) for n in "lr"]
    joined = stream_join(
        *inputs,
        on="k",
        how="left",
        time=("l_ts", "r_ts"),
        within=("0 seconds", "1 second"),
        watermark=("0 seconds", "0 seconds"),
        idle=1,
        state=str(tmp_path / "state"),
        partitions=1,
    )
    got: list[tuple[Any, ...]] = []
    query = joined.writeStream.foreachBatch(lambda rows, _: got.extend(as_text(rows)))
    query.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start().awaitTermination(120)
    left, right = (typed(session.read.parquet(str(tmp_path / name)), name) for name in "lr")
    wanted = {row[0]: row for row in as_text(left.join(right, "k", "left"))}
    assert len(got) >= ROWS - 3
    assert all(row == wanted[row[0]] for row in got)


POINT = T.StructType([T.StructField("a", T.IntegerType()), T.StructField("a", T.IntegerType())])
REFUSED = {
    "equal names in a struct": POINT,
    "months as keys of a map": T.MapType(T.YearMonthIntervalType(), T.IntegerType()),
    "a type of the user": VectorUDT(),
    "a place on a map": T.GeometryType(4326),
    "a place deep inside": T.ArrayType(T.MapType(T.StringType(), T.GeographyType(4326))),
    "nothing as keys of a map": T.MapType(T.NullType(), T.IntegerType()),
}


@pytest.mark.parametrize("case", REFUSED)
def test_types_that_cannot_travel_have_no_arrow_type(case: str) -> None:
    assert arrow_type(REFUSED[case]) is None


def test_column_that_cannot_travel_is_refused_before_the_query_starts(session: SparkSession, tmp_path: Path) -> None:
    rows = session.readStream.format("rate").load()
    rows = rows.selectExpr("value as k", "timestamp as ts", "struct(1 as a, 2 as a) v")
    with pytest.raises(SchemaError, match="give equal fields other names"):
        stream_join(rows, rows, on="k", time=("ts", "ts"), ttl="1 hour", watermark=("0 s", "0 s"), state=tmp_path / "s")
    assert not (tmp_path / "s").exists()
