"""Whatever is killed, and whenever: the result is the batch join of the same input, each row as often as there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import Figures
from tests.support.sizes import size
from tests.support.stream_run import batch_join, decided, drain, our_join, results, rows_of
from tests.support.workloads import Workload, calm_workload

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
POINTS = (
    *("before-barrier", "after-barrier", "before-sstable", "after-sstable"),
    *("before-manifest", "after-manifest", "before-acknowledgement", "daemon"),
)


def start_driver(work: Workload, home: Path, master: str, kills: Path | None = None) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if kills is not None:
        environment["PYTHONPATH"] += os.pathsep + str(ROOT / "tests/support/worker_site")
        environment["LSMSTATE_TEST_KILLS"] = str(kills)
    batches = len(work.files[0]) - (work.how != "inner")  # those have one more that ends them
    arguments = [home, work.seed, batches, master, work.how]
    command = [sys.executable, "-m", "tests.support.stream_driver", *map(str, arguments)]
    log = (home / "driver.log").open("ab")
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def finish(driver: subprocess.Popen[bytes], home: Path) -> None:
    assert driver.wait(300) == 0, (home / "driver.log").read_text()[-3000:]


def written(tmp_path: Path, batches: int, seed: int = 11, how: str = "inner") -> Workload:
    work = calm_workload(seed, batches, how=how)
    work.write(tmp_path, len(work.files[0]))
    return work


def check(spark: SparkSession, work: Workload, home: Path) -> None:
    expected = rows_of(batch_join(spark, work, home))
    assert expected.total() > 1000
    got = results(spark, home)
    assert (got == expected) if work.how == "inner" else (decided(got) == decided(expected))


@pytest.mark.parametrize("number", range(size("spark_rounds")))
def test_worker_killed_at_each_point_changes_nothing(
    number: int, spark: SparkSession, tmp_path: Path, figures: Figures
) -> None:
    master, how = (("local[2,8]", "full"), ("local-cluster[2,1,1024]", "inner"))[number % 2]
    work = written(tmp_path, len(POINTS) + 1, seed=11 + number // 2, how=how)
    kills = tmp_path / "kills"
    kills.mkdir()
    points = list(POINTS)
    if number > 1:  # then each is met in another epoch
        random.Random(number).shuffle(points)
    for at, point in enumerate(points):
        (kills / point).write_text(str(at + 1))
    finish(start_driver(work, tmp_path, master, kills), tmp_path)
    assert list(kills.iterdir()) == []  # each was killed
    check(spark, work, tmp_path)
    figures.add("Python workers of Spark killed in the middle of an epoch", len(POINTS))


def test_driver_killed_twice_changes_nothing(spark: SparkSession, tmp_path: Path, figures: Figures) -> None:
    work = written(tmp_path, 6, how="left")
    kill_when(start_driver(work, tmp_path, "local[2,8]"), lambda: durable(tmp_path, epoch=2))
    kill_when(start_driver(work, tmp_path, "local[2,8]"), lambda: (tmp_path / "out/_spark_metadata/3").exists())
    finish(start_driver(work, tmp_path, "local[2,8]"), tmp_path)
    check(spark, work, tmp_path)
    figures.add("drivers of Spark killed", 2)


def durable(home: Path, epoch: int) -> bool:
    """Whether a partition has finished the epoch."""
    return any((home / "state").glob(f"p-*/manifest/{epoch:012d}-*"))


def kill_when(driver: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    """Kills the driver and its JVM. Python workers may live on for a moment, as they do when machines fail."""
    deadline = time.monotonic() + 120
    while not reached():
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def test_batch_that_spark_skips_after_a_restart_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    work = calm_workload(12, 5)
    work.write(tmp_path, 3)
    drain(our_join(spark, work, tmp_path), tmp_path)
    (tmp_path / "checkpoint/commits/2").unlink()  # Spark will run batch 2 again; its sink knows better, and skips it
    (tmp_path / "checkpoint/commits/.2.crc").unlink(missing_ok=True)
    work.write(tmp_path, 5)
    drain(our_join(spark, work, tmp_path), tmp_path)
    check(spark, work, tmp_path)


def test_batch_evaluated_twice_gives_the_same_rows_twice(spark: SparkSession, tmp_path: Path) -> None:
    work = written(tmp_path, 4)
    counted: list[int] = []

    def both(batch: DataFrame, number: int) -> None:
        counted.append(batch.count())
        batch.write.mode("overwrite").parquet(str(tmp_path / f"batches/{number}"))

    writer = our_join(spark, work, tmp_path).writeStream.foreachBatch(both)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.stop()
    expected = rows_of(batch_join(spark, work, tmp_path))
    assert sum(counted) == expected.total()
    assert rows_of(spark.read.parquet(str(tmp_path / "batches/*"))) == expected


def test_spark_connect_gives_the_batch_join(spark: SparkSession, tmp_path: Path) -> None:
    work = written(tmp_path, 3)
    finish(start_driver(work, tmp_path, "connect:local[2]"), tmp_path)
    check(spark, work, tmp_path)


def test_progress_tells_of_every_epoch(spark: SparkSession, tmp_path: Path) -> None:
    from lsmstate.spark import progress

    work = written(tmp_path, 3)
    writer = our_join(spark, work, tmp_path).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    told: list[Any] = progress(query)
    query.stop()
    assert [(epoch.epoch, epoch.batch_id, epoch.partitions) for epoch in told] == [(1, 0, 2), (2, 1, 2), (3, 2, 2)]
    assert sum(epoch.rows_out for epoch in told) == batch_join(spark, work, tmp_path).count()
    assert [epoch.rows_in for epoch in told] == [(200, 200)] * 3
    nulls = [sum(row[("n", "m")[side]] is None for file in work.files[side] for row in file) for side in (0, 1)]
    assert [sum(epoch.unkeyed[side] for epoch in told) for side in (0, 1)] == nulls
    assert told[-1].state_rows == (600 - nulls[0], 600 - nulls[1])
