"""A Spark session as the tests want it: small, quiet, with the Python of the tests in its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.pollingDelay": "5ms",
    # both engines run the same batches: what is late then means the same to both (Spark looks one batch back)
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

# Spark's usual way to write a checkpoint starts a `stat` for each file. This one is not atomic when it is killed: only
# for sessions that nobody kills.
TIME_TYPE = "spark.sql.timeType.enabled"  # TIME is off unless told
FEW_PROCESSES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


def make_session(
    master: str = "local[2,8]", settings: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> SparkSession:
    """A new session. `environment` is what its Python workers see besides."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.update(environment or {})
    builder = SparkSession.builder.master(master).appName("lsmstate tests")
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def connect_session(master: str) -> SparkSession:
    """A session through Spark Connect, with a server of its own on this machine."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
