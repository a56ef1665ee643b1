"""A query whose inputs have got other columns goes on from its checkpoint, with the rows of before in its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lsmstate import SchemaError, read_state
from lsmstate.spark import stream_join
from tests.support.stream_run import drain

pytestmark = pytest.mark.spark
BEFORE = "k bigint, ts timestamp, small int, word string"
AFTER = "k bigint, word string, ts timestamp, small bigint, more double"


def joined(spark: SparkSession, home: Path, columns: str) -> DataFrame:
    left = spark.readStream.schema(columns).parquet(str(home / "left"))
    right = spark.readStream.schema("k bigint, at timestamp").parquet(str(home / "right"))
    within: dict[str, Any] = {"within": ("-1 minute", "1 minute"), "watermark": ("1 hour", "1 hour")}
    return stream_join(left, right, on="k", time=("ts", "at"), state=home / "state", partitions=2, **within)


def add(spark: SparkSession, home: Path, side: str, columns: str, *rows: tuple[Any, ...]) -> None:
    told = spark.createDataFrame(rows, columns.replace(" timestamp", " string"))
    time = "ts" if side == "left" else "at"
    told.withColumn(time, told[time].cast("timestamp")).coalesce(1).write.mode("append").parquet(str(home / side))


def test_query_goes_on_with_other_columns_and_old_rows_meet_new_ones(spark: SparkSession, tmp_path: Path) -> None:
    at = "2026-01-01 00:00:0"
    add(spark, tmp_path, "left", BEFORE, (1, f"{at}1", 7, "old"))
    add(spark, tmp_path, "right", "k bigint, at timestamp", (9, f"{at}1"))
    drain(joined(spark, tmp_path, BEFORE), tmp_path)

    add(spark, tmp_path, "left", AFTER, (2, "new", f"{at}2", 1 << 40, 0.5))
    add(spark, tmp_path, "right", "k bigint, at timestamp", (1, f"{at}3"), (2, f"{at}3"))
    drain(joined(spark, tmp_path, AFTER), tmp_path)
    rows = spark.read.schema(AFTER).parquet(str(tmp_path / "out")).select("k", "word", "small", "more").collect()
    assert sorted(map(tuple, rows)) == [(1, "old", 7, None), (2, "new", 1 << 40, 0.5)]
    assert read_state(tmp_path / "state").select(["k", "small", "more"]).sort_by("k").to_pylist() == [
        {"k": 1, "small": 7, "more": None},
        {"k": 2, "small": 1 << 40, "more": 0.5},
    ]

    with pytest.raises(SchemaError, match="'small' is int32 instead of int64: only whole numbers and floats may widen"):
        joined(spark, tmp_path, BEFORE)
