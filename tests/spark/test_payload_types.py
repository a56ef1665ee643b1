"""Every Spark type as payload: what a stream brings through the join is what the batch join of the same rows gives."""

from __future__ import annotations

import subprocess
import sys
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
from tests.support.typed_rows import ROWS, as_text, joined, know_all, typed

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that knows TIME, in a zone that is not UTC."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    know_all(spark)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    spark.conf.unset(TIME_TYPE)


def texts(rows: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in as_text(rows).collect()]


def write_inputs(session: SparkSession, home: Path) -> DataFrame:
    """Two inputs that share half of their keys; gives the batch join of them."""
    for name, first in (("l", 0), ("r", ROWS // 2)):
        session.range(first, first + ROWS).repartition(3).write.parquet(str(home / name))
    left, right = (typed(session.read.parquet(str(home / name)), name) for name in "lr")
    return left.join(right, "k")


def test_columns_of_every_type_are_as_spark_joins_them(session: SparkSession, tmp_path: Path) -> None:
    batch = write_inputs(session, tmp_path)
    stream = joined(session, tmp_path, "inner")
    got: list[tuple[Any, ...]] = []
    query = stream.writeStream.foreachBatch(lambda rows, _: got.extend(texts(rows)))
    query.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start().awaitTermination(120)
    assert [field.name for field in stream.schema.fields] == batch.columns
    loose = {f"{side}_{name}" for side in "lr" for name in ("empty", "list_months", "struct_calendar")}
    for ours, theirs in zip(stream.schema.fields, batch.schema.fields, strict=True):
        assert ours.dataType == theirs.dataType or ours.name in loose
        assert ours.dataType.simpleString() == theirs.dataType.simpleString()
    assert sorted(got, key=repr) == sorted(texts(batch), key=repr)
    assert len(got) == ROWS // 2
    kept = read_state(tmp_path / "state", side="left")
    kept.validate(full=True)
    assert kept.num_rows == ROWS


def test_columns_of_every_type_travel_through_spark_connect(session: SparkSession, tmp_path: Path) -> None:
    batch = write_inputs(session, tmp_path)
    command = [sys.executable, "-m", "tests.support.typed_rows", str(tmp_path), "left"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    got = [tuple(row) for row in session.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(got, key=repr) == sorted(texts(batch), key=repr)
    assert len(got) == ROWS // 2


@pytest.mark.parametrize("partner", [False, True], ids=["alone", "with partners"])
def test_rows_without_partners_have_nulls_of_every_type(partner: bool, session: SparkSession, tmp_path: Path) -> None:
    session.range(0, ROWS).write.parquet(str(tmp_path / "l"))
    session.range(ROWS - 3 if partner else ROWS, ROWS + 1000).write.parquet(str(tmp_path / "r"))
    inputs = [typed(session.readStream.schema("id long").parquet(str(tmp_path / n)), n) for n in "lr"]
    stream = stream_join(
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
    query = stream.writeStream.foreachBatch(lambda rows, _: got.extend(texts(rows)))
    query.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start().awaitTermination(120)
    left, right = (typed(session.read.parquet(str(tmp_path / name)), name) for name in "lr")
    wanted = {row[0]: row for row in texts(left.join(right, "k", "left"))}
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
