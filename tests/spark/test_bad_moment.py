"""Queries that would harm a state, or be harmed by it, fail with a word on what to do; and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from lsmstate import read_state
from tests.support.stream_run import batch_join, drain, our_join, results, rows_of, source
from tests.support.workloads import START_S, Workload, calm_workload

pytestmark = pytest.mark.spark


@pytest.fixture
def work(tmp_path: Path) -> Workload:
    """Four files a side, two of them there."""
    work = calm_workload(31, 4, rows=60)
    work.write(tmp_path, 2)
    return work


def fails(run: Callable[[], None], *words: str) -> None:
    with pytest.raises(StreamingQueryException) as raised:
        run()
    for word in words:
        assert word in str(raised.value)


def test_deleted_checkpoint_is_refused_and_works_again_once_it_is_back(
    spark: SparkSession, work: Workload, tmp_path: Path
) -> None:
    drain(our_join(spark, work, tmp_path), tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "aside")
    (tmp_path / "out").rename(tmp_path / "out-aside")
    words = "Two queries cannot share a state", "bring it back, or delete the state too"
    fails(lambda: drain(our_join(spark, work, tmp_path), tmp_path), *words)
    for name in ("checkpoint", "out"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "aside").rename(tmp_path / "checkpoint")
    (tmp_path / "out-aside").rename(tmp_path / "out")
    work.write(tmp_path, 4)
    drain(our_join(spark, work, tmp_path), tmp_path)
    assert results(spark, tmp_path) == rows_of(batch_join(spark, work, tmp_path))


def test_deleted_state_is_refused(spark: SparkSession, work: Workload, tmp_path: Path) -> None:
    drain(our_join(spark, work, tmp_path), tmp_path)
    shutil.rmtree(tmp_path / "state")
    work.write(tmp_path, 4)
    words = "the state was deleted or moved", "start the query with a new checkpointLocation"
    fails(lambda: drain(our_join(spark, work, tmp_path), tmp_path), *words)


def test_state_deleted_under_a_query_is_told(spark: SparkSession, work: Workload, tmp_path: Path) -> None:
    writer = our_join(spark, work, tmp_path).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        shutil.rmtree(tmp_path / "state")
        fails(lambda: query.awaitTermination(60), "the state is gone. Bring it back")
    finally:
        query.stop()


def test_checkpoint_older_than_the_state_is_refused(spark: SparkSession, work: Workload, tmp_path: Path) -> None:
    drain(our_join(spark, work, tmp_path), tmp_path)
    for name in ("checkpoint", "out"):
        shutil.copytree(tmp_path / name, tmp_path / f"{name}-copy")
    work.write(tmp_path, 4)
    drain(our_join(spark, work, tmp_path), tmp_path)
    for name in ("checkpoint", "out"):
        shutil.rmtree(tmp_path / name)
        (tmp_path / f"{name}-copy").rename(tmp_path / name)
    words = "Spark is at batch 2, the state at batch 3", "Asynchronous progress tracking"
    fails(lambda: drain(our_join(spark, work, tmp_path), tmp_path), *words)


def test_limit_downstream_is_told(spark: SparkSession, work: Workload, tmp_path: Path) -> None:
    work = calm_workload(33, 2)
    for side in (0, 1):  # more pairs than fit into the buffers on the way: the task notices that nobody takes them
        key = {"k": "hot", ("n", "m")[side]: 1}
        row = {**key, "ts": START_S * 1_000_000, "v": 1, ("lv", "rv")[side]: "x" * 100}
        work.files[side][0] += [row] * 1500
    work.write(tmp_path, 2)
    limited = our_join(spark, work, tmp_path).limit(1)
    fails(lambda: drain(limited, tmp_path), "is not complete: partitions", "`limit`")


def test_second_query_on_a_state_is_refused_and_the_first_goes_on(
    spark: SparkSession, work: Workload, tmp_path: Path
) -> None:
    joined = our_join(spark, work, tmp_path)
    drain(joined, tmp_path)
    other = joined.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "other"))
    fails(lambda: _end(other), "Two queries cannot share a state")
    work.write(tmp_path, 4)
    drain(joined, tmp_path)
    assert results(spark, tmp_path) == rows_of(batch_join(spark, work, tmp_path))


def _end(writer: object) -> None:
    writer.trigger(availableNow=True).start().awaitTermination()  # type: ignore[attr-defined]


def test_result_behind_another_stream_in_a_union_is_refused(
    spark: SparkSession, work: Workload, tmp_path: Path
) -> None:
    columns = ["k", "ts"]
    other = source(spark, work, tmp_path, 0).select(columns)
    united = other.union(our_join(spark, work, tmp_path).select(columns))
    fails(lambda: drain(united, tmp_path), "renumbers its tasks", "joined.repartition(...)")


def test_batch_use_of_the_result_is_refused_by_spark_itself(
    spark: SparkSession, work: Workload, tmp_path: Path
) -> None:
    joined: DataFrame = our_join(spark, work, tmp_path)
    with pytest.raises(Exception, match="writeStream"):
        joined.count()


def test_tick_runs_a_batch_without_data_that_evicts(spark: SparkSession, tmp_path: Path) -> None:
    from lsmstate.spark import progress, tick

    work = calm_workload(32, 2, rows=60)
    work.delays_s = (0, 0)
    for file in (*work.files[0], *work.files[1]):  # each file ten minutes after the one before
        for row in file:
            row["ts"] += 590_000_000 * int(str(row.get("lv") or row.get("rv")).partition("-")[0])
    work.write(tmp_path, 2)
    writer = our_join(spark, work, tmp_path).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        before = progress(query)[-1]
        tick(str(tmp_path / "state"))
        query.processAllAvailable()
        after = progress(query)[-1]
    finally:
        query.stop()
    assert after.epoch == before.epoch + 1
    assert after.rows_in == (0, 0)
    assert after.watermark_us > before.watermark_us
    assert after.files < before.files
    assert read_state(tmp_path / "state", side="right").num_rows <= sum(before.state_rows)
