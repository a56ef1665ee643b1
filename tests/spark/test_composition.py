"""What follows the join: windows, static tables, further joins. Each equals its batch result."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lsmstate.spark import stream_join
from tests.support.stream_run import batch_join, drain, our_join, results, rows_of, source
from tests.support.workloads import START_S, Workload, calm_workload

pytestmark = pytest.mark.spark


def written(home: Path, batches: int, seed: int = 21) -> Workload:
    work = calm_workload(seed, batches)
    work.write(home, batches)
    return work


def test_windows_over_the_result_equal_batch(spark: SparkSession, tmp_path: Path) -> None:
    work = calm_workload(22, 6)
    far = (START_S + 100_000) * 1_000_000
    for side in (0, 1):  # two last files, far ahead, let the watermark pass all windows before them
        key = {"k": "far", ("n", "m")[side]: 1}
        work.files[side].extend([[{**key, "ts": far, "v": 1, ("lv", "rv")[side]: "far"}]] * 2)
    work.write(tmp_path, 8)

    def windows(joined: DataFrame) -> DataFrame:
        counted = joined.groupBy(F.window("ts", "20 seconds"), "k").agg(F.count("*").alias("rows"), F.sum("v"))
        return counted.select("window.start", "k", "rows", "sum(v)")

    joined = our_join(spark, work, tmp_path).withWatermark("ts", "2 minutes")
    drain(windows(joined), tmp_path)
    expected = rows_of(windows(batch_join(spark, work, tmp_path)).where("k != 'far'"))
    assert expected.total() > 50
    assert results(spark, tmp_path) == expected


def test_static_join_after_the_result_equals_batch(spark: SparkSession, tmp_path: Path) -> None:
    work = written(tmp_path, 3)
    names = spark.createDataFrame([(f"key-{n}", f"name {n}") for n in range(10)], "k string, name string")
    drain(our_join(spark, work, tmp_path).join(names, "k", "left"), tmp_path)
    assert results(spark, tmp_path) == rows_of(batch_join(spark, work, tmp_path).join(names, "k", "left"))


@pytest.mark.parametrize("joined_side", ["left", "right"])
def test_chained_join_equals_batch(joined_side: str, spark: SparkSession, tmp_path: Path) -> None:
    work = written(tmp_path, 4)
    third = calm_workload(23, 4, rows=40)
    third.write(tmp_path / "third", 4)
    first = our_join(spark, work, tmp_path).select("k", "ts", "lv", "rv")
    other = source(spark, third, tmp_path / "third", 0).select("k", F.col("ts").alias("at"), F.col("lv").alias("third"))
    pair, times = ((first, other), ("ts", "at")) if joined_side == "left" else ((other, first), ("at", "ts"))
    chained = stream_join(
        *pair,
        on="k",
        time=times,
        within=("-5 seconds", "5 seconds"),
        watermark=("2 hours", "2 hours"),
        state=tmp_path / "second",
        partitions=3,
    )
    drain(chained.select("k", "ts", "at", "lv", "rv", "third"), tmp_path)
    left = batch_join(spark, work, tmp_path).select("k", "ts", "lv", "rv").alias("a")
    right = spark.read.parquet(str(tmp_path / "third/left")).select("k", F.col("ts").alias("at"), "lv").alias("b")
    near = "a.k = b.k and abs(unix_micros(b.at) - unix_micros(a.ts)) <= 5000000"
    expected = rows_of(left.join(right, F.expr(near)).selectExpr("a.k", "ts", "at", "a.lv", "rv", "b.lv as third"))
    assert expected.total() > 1000
    assert results(spark, tmp_path) == expected


def test_result_before_another_stream_in_a_union_equals_batch(spark: SparkSession, tmp_path: Path) -> None:
    work = written(tmp_path, 3)
    columns = ["k", "ts", "lv"]
    united = our_join(spark, work, tmp_path).select(columns).union(source(spark, work, tmp_path, 0).select(columns))
    drain(united, tmp_path)
    left = spark.read.parquet(str(tmp_path / "left")).select(columns)
    assert results(spark, tmp_path) == rows_of(batch_join(spark, work, tmp_path).select(columns).union(left))


def test_inputs_own_watermarks_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    work = written(tmp_path, 3)
    left, right = (source(spark, work, tmp_path, side).withWatermark("ts", "1 hour") for side in (0, 1))
    joined = stream_join(
        left,
        right,
        on=["k", ("n", "m")],
        time=("ts", "ts"),
        within=("-20 seconds", "20 seconds"),
        state=tmp_path / "state",
        partitions=2,
    )
    drain(joined, tmp_path)
    assert results(spark, tmp_path) == rows_of(batch_join(spark, work, tmp_path))
