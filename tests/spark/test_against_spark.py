"""The join gives what Spark's own streaming join gives, on the same files cut into the same batches."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Figures
from tests.support.sizes import size
from tests.support.stream_run import decided, our_join, run_in_two_halves, spark_join
from tests.support.workloads import random_workload

pytestmark = pytest.mark.spark
CODEGEN = "spark.sql.codegen.wholeStage"
HOWS = ("inner", "left", "inner", "right", "full", "left_semi")
CASES = size("spark_cases")
FOUND: list[tuple[int, str]] = [(553597716, "left_semi")]  # seeds that once failed, and the type of join


@pytest.mark.parametrize("case", range(CASES))
def test_random_workload_equals_sparks_own_join(
    case: int, spark: SparkSession, tmp_path: Path, figures: Figures
) -> None:
    compare(secrets.randbits(32), HOWS[case % len(HOWS)], spark, tmp_path, figures)


@pytest.mark.parametrize(("seed", "how"), FOUND)
def test_workload_that_once_failed_equals_sparks_own_join(
    seed: int, how: str, spark: SparkSession, tmp_path: Path, figures: Figures
) -> None:
    compare(seed, how, spark, tmp_path, figures)


def compare(seed: int, how: str, spark: SparkSession, tmp_path: Path, figures: Figures) -> None:
    work = random_workload(seed, how)
    waits = how not in ("inner", "left_semi")  # then ours has batches without data too, by the ticker
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", waits)  # else other rows would be late
    ours = run_in_two_halves(spark, work, our_join, tmp_path / "ours")
    spark.conf.set(CODEGEN, False)  # to compile it takes longer than to run it on so few rows
    theirs = run_in_two_halves(spark, work, spark_join, tmp_path / "theirs")
    spark.conf.unset(CODEGEN)
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", False)
    if how != "inner":
        ours, theirs = decided(ours), decided(theirs)
    figures.add("random workloads on Spark, equal to its own join", 1)
    figures.add("rows joined there", theirs.total())
    assert ours == theirs, f"seed {seed}, {how}: {(ours - theirs).total()} too many, {(theirs - ours).total()} missing"
