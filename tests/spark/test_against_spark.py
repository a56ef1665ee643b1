"""The join gives what Spark's own streaming join gives, on the same files cut into the same batches."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Figures
from tests.support.stream_run import our_join, run_in_two_halves, spark_join
from tests.support.workloads import random_workload

pytestmark = pytest.mark.spark
CASES = 400 if os.environ.get("LSMSTATE_TEST_SIZE") == "full" else 20
FOUND: list[int] = []  # seeds that once failed


@pytest.mark.parametrize("case", range(CASES))
def test_random_workload_equals_sparks_own_join(
    case: int, spark: SparkSession, tmp_path: Path, figures: Figures
) -> None:
    compare(secrets.randbits(32), spark, tmp_path, figures)


@pytest.mark.parametrize("seed", FOUND)
def test_workload_that_once_failed_equals_sparks_own_join(
    seed: int, spark: SparkSession, tmp_path: Path, figures: Figures
) -> None:
    compare(seed, spark, tmp_path, figures)


def compare(seed: int, spark: SparkSession, tmp_path: Path, figures: Figures) -> None:
    work = random_workload(seed)
    ours = run_in_two_halves(spark, work, our_join, tmp_path / "ours")
    theirs = run_in_two_halves(spark, work, spark_join, tmp_path / "theirs")
    figures.add("random workloads on Spark, equal to its own join", 1)
    figures.add("rows joined there", theirs.total())
    assert ours == theirs, f"seed {seed}: {(ours - theirs).total()} too many, {(theirs - ours).total()} missing"
