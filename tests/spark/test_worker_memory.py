"""Limits of the memory of Python workers: refused where none can start, and named where one does not suffice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lsmstate.spark import stream_join
from lsmstate.spark.worker_memory import LIMIT, check_worker_memory


def session(**told: str) -> Any:
    """What knows settings."""
    named = {name.replace("_", "."): value for name, value in told.items()}
    return SimpleNamespace(conf=SimpleNamespace(get=named.get))


@pytest.mark.parametrize("told", ["300m", "300", "511MB", "1k", "1048576b"])
def test_limit_that_no_worker_can_start_under_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match=rf"{LIMIT} is {told}; a worker needs 512 MiB.*Leave it unset"):
        check_worker_memory(session(spark_executor_pyspark_memory=told))


def test_limit_is_shared_by_the_cores_of_an_executor() -> None:
    check_worker_memory(session(spark_executor_pyspark_memory="2g", spark_executor_cores="4"))
    with pytest.raises(ValueError, match=r"is 2g, shared by 5 cores"):
        check_worker_memory(session(spark_executor_pyspark_memory="2g", spark_executor_cores="5"))


@pytest.mark.parametrize("told", [None, "0", "512m", "1g", "2gb", "1t", "536870912b"])
def test_other_limits_and_none_are_taken(told: str | None) -> None:
    check_worker_memory(session(**({} if told is None else {"spark_executor_pyspark_memory": told})))


@pytest.mark.spark
def test_join_is_refused_before_it_touches_its_state(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()
    legacy = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"
    spark.conf.set(legacy, "false")
    spark.conf.set(LIMIT, "300m")
    try:
        with pytest.raises(ValueError, match="a worker needs 512 MiB"):
            stream_join(
                rows,
                rows,
                on="value",
                time=("timestamp", "timestamp"),
                ttl="1 hour",
                watermark=("1 second", "1 second"),
                state=tmp_path / "state",
                partitions=2,
            )
    finally:
        spark.conf.unset(LIMIT)
        spark.conf.unset(legacy)
    assert not (tmp_path / "state").exists()


STARVED = """
import resource, sys
from lsmstate.spark import task

def starved(spec, wiring, batches):
    yield bytes(8 << 40)  # more than any machine has

task.run_task = starved
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), -1))
try:
    list(task.make_task(None, None)(iter([])))
except MemoryError as error:
    sys.stdout.write(f"{error!r} {error.__cause__!r}")
"""


@pytest.mark.parametrize(("limit", "told"), [(2 << 30, f"The limit is that of {LIMIT}, or of `ulimit -v`"), (-1, "")])
def test_worker_that_runs_out_of_memory_names_the_limit_if_there_is_one(limit: int, told: str) -> None:
    done = subprocess.run([sys.executable, "-c", STARVED, str(limit)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if told:
        assert "this worker may use 2048 MiB" in done.stdout
        assert told in done.stdout
        assert done.stdout.endswith("MemoryError()")
    else:
        assert done.stdout == "MemoryError() None"
