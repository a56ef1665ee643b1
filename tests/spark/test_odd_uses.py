"""Uses of the result that would lose rows, or confuse runs: refused with a word on what to do, or right."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from lsmstate.spark import stream_join
from tests.support.stream_run import batch_join, drain, our_join, results, rows_of, source
from tests.support.workloads import Workload, calm_workload

pytestmark = pytest.mark.spark


@pytest.fixture
def work(tmp_path: Path) -> Workload:
    """Four files a side."""
    work = calm_workload(41, 4, rows=60)
    work.write(tmp_path, 4)
    return work


def for_each(spark: SparkSession, work: Workload, home: Path, function: object) -> None:
    writer = our_join(spark, work, home).writeStream.foreachBatch(function)  # type: ignore[arg-type]
    query = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_batch_that_foreach_batch_does_not_evaluate_is_told(
    spark: SparkSession, work: Workload, tmp_path: Path
) -> None:
    def skipping(batch: DataFrame, number: int) -> None:
        if number != 1:
            batch.count()

    with pytest.raises(StreamingQueryException, match=r"batch 1 was never evaluated.*Evaluate every batch"):
        for_each(spark, work, tmp_path, skipping)


def test_job_group_of_the_users_own_is_told(spark: SparkSession, work: Workload, tmp_path: Path) -> None:
    def grouped(batch: DataFrame, number: int) -> None:
        batch.sparkSession.sparkContext.setJobGroup("etl", "")
        batch.count()

    with pytest.raises(StreamingQueryException, match=r"job group of the batch is 'etl'.*do not call setJobGroup"):
        for_each(spark, work, tmp_path, grouped)


def test_batch_evaluated_in_another_thread_is_told(spark: SparkSession, work: Workload, tmp_path: Path) -> None:
    told: list[str] = []

    def elsewhere(batch: DataFrame, number: int) -> None:
        def count() -> None:
            try:
                batch.count()
            except Exception as error:
                told.append(str(error))

        thread = threading.Thread(target=count)
        thread.start()
        thread.join()

    for_each(spark, work, tmp_path, elsewhere)
    assert told
    assert all("in the function's own thread" in error for error in told)


def test_coalesced_result_is_told(spark: SparkSession, work: Workload, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match=r"coalesce"):
        drain(our_join(spark, work, tmp_path).coalesce(1), tmp_path)


@pytest.mark.parametrize("interval_ms", ["0", "60000"])
def test_asynchronous_progress_tracking_is_refused(
    spark: SparkSession, work: Workload, tmp_path: Path, interval_ms: str
) -> None:
    writer = our_join(spark, work, tmp_path).writeStream.format("noop")
    writer = writer.option("asyncProgressTrackingEnabled", "true")
    writer = writer.option("asyncProgressTrackingCheckpointIntervalMs", interval_ms)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with pytest.raises(StreamingQueryException, match=r"remove the option asyncProgressTrackingEnabled"):
            query.awaitTermination(60)
    finally:
        query.stop()


def test_joins_whose_states_have_the_same_name_can_be_chained(
    spark: SparkSession, work: Workload, tmp_path: Path
) -> None:
    first = our_join(spark, work, tmp_path).select("k", "ts", "lv")
    other = source(spark, work, tmp_path, 0).selectExpr("k", "ts as at", "lv as other")
    chained = stream_join(
        first,
        other,
        on="k",
        time=("ts", "at"),
        within=("0 seconds", "0 seconds"),
        watermark=("2 hours", "2 hours"),
        state=tmp_path / "second/state",
        partitions=2,
    )
    drain(chained, tmp_path)
    left = batch_join(spark, work, tmp_path).select("k", "ts", "lv")
    right = spark.read.parquet(str(tmp_path / "left")).selectExpr("k as k2", "ts as at", "lv as other")
    expected = left.join(right, (left.k == right.k2) & (left.ts == right.at)).select("k", "ts", "lv", "at", "other")
    assert results(spark, tmp_path) == rows_of(expected)
