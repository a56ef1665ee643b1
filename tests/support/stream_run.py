"""Runs a workload through a streaming join, ours or Spark's own, and reads back what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lsmstate.spark import stream_join
from tests.support.workloads import Workload

Join = Callable[[SparkSession, Workload, Path], DataFrame]


def source(spark: SparkSession, work: Workload, home: Path, side: int) -> DataFrame:
    """An input as a stream, one file a batch."""
    path = str(home / ("left", "right")[side])
    rows = spark.readStream.schema(work.ddl(side)).option("maxFilesPerTrigger", 1).parquet(path)
    return rows.where("v != 0")


def our_join(spark: SparkSession, work: Workload, home: Path) -> DataFrame:
    """The workload's join by lsmstate."""
    return stream_join(
        source(spark, work, home, 0),
        source(spark, work, home, 1),
        on=[pair if pair[0] != pair[1] else pair[0] for pair in work.keys],
        how=work.how,
        time=("ts", "ts"),
        within=(f"{work.lower_s} seconds", f"{work.upper_s} seconds"),
        watermark=(f"{work.delays_s[0]} seconds", f"{work.delays_s[1]} seconds"),
        state=home / "state",
        partitions=work.partitions,
        suffixes=("", "_right"),
    )


def spark_join(spark: SparkSession, work: Workload, home: Path) -> DataFrame:
    """The same by Spark's own streaming join."""
    left, right = (
        source(spark, work, home, side).withWatermark("ts", f"{work.delays_s[side]} seconds").alias("lr"[side])
        for side in (0, 1)
    )
    return left.join(right, condition(work), work.how).select(*result_columns(work))


def batch_join(spark: SparkSession, work: Workload, home: Path) -> DataFrame:
    """The same over all files at once: right where no row is late."""
    left, right = (
        spark.read.schema(work.ddl(side)).parquet(str(home / ("left", "right")[side])).where("v != 0").alias("lr"[side])
        for side in (0, 1)
    )
    return left.join(right, condition(work), work.how).select(*result_columns(work))


def condition(work: Workload) -> Any:
    """Equal keys, and a right time within the interval around the left one."""
    keys = " and ".join(f"l.{one} = r.{other}" for one, other in work.keys)
    times = f"r.ts >= l.ts + interval {work.lower_s} seconds and r.ts <= l.ts + interval {work.upper_s} seconds"
    return F.expr(f"{keys} and {times}")


def result_columns(work: Workload) -> list[Any]:
    """The columns of `our_join`: keys of equal names once, clashing names with the suffix."""
    left = [*(one for one, _ in work.keys), "ts", "v", "lv"]
    if work.how in ("left_semi", "left_anti"):
        return [F.col(f"l.{name}") for name in left]
    right = [*(other for one, other in work.keys if one != other), "ts", "v", "rv"]
    named = [F.col(f"r.{name}").alias(f"{name}_right" if name in left else name) for name in right]
    once = {one for one, other in work.keys if one == other}
    own = [F.coalesce(f"l.{name}", f"r.{name}").alias(name) if name in once else F.col(f"l.{name}") for name in left]
    return [*own, *named]


def drain(joined: DataFrame, home: Path) -> None:
    """Runs the query till its sources are empty."""
    writer = joined.writeStream.format("parquet").option("path", str(home / "out"))
    query = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def results(spark: SparkSession, home: Path) -> Counter[tuple[Any, ...]]:
    """What came out: each row with how often it did."""
    if not (home / "out" / "_spark_metadata").exists():
        return Counter()
    return rows_of(spark.read.parquet(str(home / "out")))


def rows_of(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    """The rows of a batch DataFrame, each with how often it is there."""
    return Counter(tuple(row) for row in frame.collect())


def decided(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Without those of the last file, which nothing comes after."""
    return Counter({row: count for row, count in rows.items() if "far" not in row})


def run_in_two_halves(spark: SparkSession, work: Workload, join: Join, home: Path) -> Counter[tuple[Any, ...]]:
    """All of a workload, the query being restarted in the middle."""
    work.written = [0, 0]
    for upto in (work.restart_after, max(map(len, work.files))):
        work.write(home, upto)
        drain(join(spark, work, home), home)
    return results(spark, home)
