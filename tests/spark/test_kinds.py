"""Joins that Spark has none of, against their batch results; what waits comes out by itself, and can be aggregated."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lsmstate import read_state
from lsmstate.spark import progress, stream_join
from tests.conftest import Figures
from tests.support.stream_run import batch_join, decided, drain, our_join, results, rows_of, run_in_two_halves, source
from tests.support.workloads import START_S, Workload, calm_workload

pytestmark = pytest.mark.spark
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
ON = ["k", ("n", "m")]
KEYS = "l.k = r.k and l.n = r.m"
PAIR = ("l.k", "n", "l.ts", "l.v", "lv", "m", "r.ts as ts_right", "r.v as v_right", "rv")


def joined_by(work: Workload, spark: SparkSession, home: Path, **kind: Any) -> DataFrame:
    inputs = [source(spark, work, home, side) for side in (0, 1)]
    common = {"time": ("ts", "ts"), "watermark": ("1 hour", "1 hour"), "state": home / "state", "partitions": 2}
    return stream_join(*inputs, on=ON, how=work.how, **common, **kind)


def tables(spark: SparkSession, work: Workload, home: Path) -> None:
    for name, side in (("l", "left"), ("r", "right")):
        rows = spark.read.parquet(str(home / side)).where("v != 0")
        rows.withColumn("row", F.monotonically_increasing_id()).createOrReplaceTempView(name)


@pytest.mark.parametrize(
    ("how", "kind", "meets"),
    [
        (
            "left_anti",
            {"within": ("-2 seconds", "1 second")},
            "r.ts - l.ts between interval -2 second and interval 1 second",
        ),
        ("full", {"ttl": "3 seconds"}, "abs(unix_micros(r.ts) - unix_micros(l.ts)) <= 3000000"),
        ("full", {"instant": True}, "r.ts = l.ts"),
        (
            "left",
            {"within": ("-20 seconds", "20 seconds"), "condition": pc.field("lv") < pc.field("rv")},
            "abs(unix_micros(r.ts) - unix_micros(l.ts)) <= 20000000 and l.lv < r.rv",
        ),
    ],
)
def test_kind_equals_batch(how: str, kind: dict[str, Any], meets: str, spark: SparkSession, tmp_path: Path) -> None:
    work = calm_workload(31, 4, rows=100, how=how, grain_us=1_000_000)
    work.restart_after = 2
    got = run_in_two_halves(spark, work, lambda session, load, home: joined_by(load, session, home, **kind), tmp_path)
    tables(spark, work, tmp_path)
    both = ", ".join(PAIR).replace("l.k,", "coalesce(l.k, r.k) as k,", 1)
    columns = "l.k, n, l.ts, l.v, lv" if how == "left_anti" else both
    sql = f"select {columns} from l {'left anti' if how == 'left_anti' else how} join r on {KEYS} and {meets}"
    expected = decided(rows_of(spark.sql(sql)))
    assert expected.total() > 100
    assert decided(got) == expected


def test_as_of_equals_batch(spark: SparkSession, tmp_path: Path) -> None:
    work = calm_workload(32, 4, rows=100, how="left", grain_us=1_000_000)
    work.restart_after = 2
    got = run_in_two_halves(spark, work, lambda s, load, home: joined_by(load, s, home, asof="5 seconds"), tmp_path)
    tables(spark, work, tmp_path)
    near = "r.ts <= l.ts and r.ts >= l.ts - interval 5 seconds"
    best = "row_number() over (partition by l.row order by r.ts desc, r.v desc, r.rv desc) as place"
    sql = f"select {', '.join(PAIR)}, {best} from l left join r on {KEYS} and {near}"
    expected = decided(rows_of(spark.sql(sql).where("place = 1").drop("place")))
    assert expected.total() > 300
    assert decided(got) == expected


def test_windows_over_a_left_join_equal_batch_and_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    work = calm_workload(33, 5, rows=60, how="left")
    work.files[1][:0] = [[], [], []]  # the right side lags behind the left one
    work.write(tmp_path, 20)

    def windows(joined: DataFrame) -> DataFrame:
        counted = joined.groupBy(F.window("ts", "20 seconds"), "k").agg(F.count("*"), F.count("rv"))
        return counted.select("window.start", "k", "count(1)", "count(rv)")

    spark.conf.set(NO_DATA, True)
    query = windows(our_join(spark, work, tmp_path)).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    running.awaitTermination()
    spark.conf.set(NO_DATA, False)
    dropped = [int(o.numRowsDroppedByWatermark) for p in running.recentProgress for o in p.stateOperators]
    assert dropped
    assert sum(dropped) == 0
    expected = decided(rows_of(windows(batch_join(spark, work, tmp_path))))
    assert expected.total() > 50
    assert results(spark, tmp_path) == expected


def test_unmatched_rows_come_out_without_new_data(spark: SparkSession, tmp_path: Path, figures: Figures) -> None:
    work = calm_workload(34, 2, rows=50, how="left")
    work.write(tmp_path, 3)  # the last file moves the watermark; nothing comes after it
    writer = our_join(spark, work, tmp_path).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        moved = waited_for(query, lambda epochs: any(e.rows_in == (1, 1) for e in epochs))
        decided_at = waited_for(query, lambda epochs: epochs[-1].watermark_us > (START_S + 900_000) * 1_000_000)
    finally:
        query.stop()
    figures.add("milliseconds from the watermark's step to unmatched rows", round((decided_at - moved) * 1000))
    assert decided(results(spark, tmp_path)) == decided(rows_of(batch_join(spark, work, tmp_path)))


def waited_for(query: Any, is_so: Any) -> float:
    """When something was first seen in the progress of a query."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        epochs = progress(query)
        if epochs and is_so(epochs):
            return time.monotonic()
        assert query.isActive, query.exception()
        time.sleep(0.02)  # Spark tells its progress to those who ask
    raise AssertionError("it did not happen")


def test_idle_side_holds_nothing_up_and_late_rows_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    work = calm_workload(35, 6, rows=20, how="left")
    work.files[1][1:] = [[] for _ in work.files[1][1:]]  # right falls silent after its first file
    work.files[0][-1][0]["ts"] = (START_S + 100_000) * 1_000_000  # late rows are kept for a week
    old = {**work.files[0][0][0], "ts": (START_S - 1000) * 1_000_000, "lv": "late"}
    work.files[0][-1].append(old)
    work.write(tmp_path, 20)
    inputs = [source(spark, work, tmp_path, side) for side in (0, 1)]
    joined = stream_join(
        *inputs,
        on=ON,
        how="left",
        time=("ts", "ts"),
        within=("-1 second", "1 second"),
        watermark=("1 minute", "1 minute"),
        state=tmp_path / "state",
        partitions=2,
        idle=2,
        late="keep",
    )
    drain(joined, tmp_path)
    got = Counter(row[4] for row in results(spark, tmp_path).elements())
    assert got["far"] == 0  # nothing comes after it
    assert sum(got.values()) == sum(len(file) for file in work.files[0][:-1])
    late = read_state(tmp_path / "state", side="left_late").to_pylist()
    assert [(row["lv"], row["__reason"]) for row in late] == [("late", "late")]


def test_keys_of_different_widths_with_suffixes_and_a_condition_of_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    ddl = {"left": "id int, ts timestamp, v bigint, v_right bigint", "right": "id bigint, ts timestamp, v bigint"}
    rows = {"left": "(1, 5, 1), (2, 5, 1)", "right": "(1, 9), (2, 0), (3000000000, 1)"}
    ts = f"timestamp_seconds({START_S})"
    for side, more in (("left", ", c as v_right"), ("right", "")):
        names = "(a, b, c)" if more else "(a, b)"
        frame = spark.sql(f"select a as id, {ts} as ts, b as v{more} from values {rows[side]} as t{names}")
        kinds = [f"cast({column.split()[0]} as {column.split()[1]})" for column in ddl[side].split(", ")]
        frame.selectExpr(*kinds).write.parquet(str(tmp_path / side))
    left, right = (spark.readStream.schema(ddl[side]).parquet(str(tmp_path / side)) for side in ("left", "right"))
    joined = stream_join(
        left,
        right,
        on="id",
        how="full",
        time=("ts", "ts"),
        within=("0 seconds", "0 seconds"),
        watermark=("0 seconds", "0 seconds"),
        suffixes=("_l", "_r"),
        condition=pc.field("v_l") < pc.field("v_r"),
        state=tmp_path / "state",
        partitions=2,
    )
    assert joined.columns == ["id", "ts_l", "v_l", "v_right", "ts_r", "v_r"]
    drain(joined, tmp_path)
    found = {(row[0], row[2], row[5]) for row in results(spark, tmp_path)}
    assert found == {(1, 5, 9), (2, 5, None), (2, None, 0), (3_000_000_000, None, 1)}


def test_join_that_waits_may_follow_another_one(spark: SparkSession, tmp_path: Path) -> None:
    work = calm_workload(36, 3, rows=40, how="full")
    work.write(tmp_path, 4)
    first = our_join(spark, work, tmp_path).select("k", F.coalesce("ts", "ts_right").alias("at"), "lv", "rv")
    third = calm_workload(37, 3, rows=20, how="left")
    third.write(tmp_path / "third", 4)
    other = source(spark, third, tmp_path / "third", 0).select("k", "ts", F.col("lv").alias("third"))
    chained = stream_join(
        first,
        other,
        on="k",
        how="left",
        time=("at", "ts"),
        within=("-5 seconds", "5 seconds"),
        watermark=("2 hours", "2 hours"),
        state=tmp_path / "second",
        partitions=2,
    )
    drain(chained, tmp_path)
    left = batch_join(spark, work, tmp_path).selectExpr("k", "coalesce(ts, ts_right) as at", "lv", "rv").alias("a")
    right = spark.read.parquet(str(tmp_path / "third/left")).selectExpr("k", "ts", "lv as third").alias("b")
    near = "a.k = b.k and abs(unix_micros(b.ts) - unix_micros(a.at)) <= 5000000"
    expected = left.join(right, F.expr(near), "left").select("a.k", "at", "lv", "rv", "ts", "third")
    assert decided(results(spark, tmp_path)) == decided(rows_of(expected))
