"""The directory of a file sink, read by Spark as it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lsmstate.checkpoint.connect.file_sink import FileSink


@pytest.mark.spark
def test_spark_reads_committed_epochs_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out")
    sink.open("job/out", None)
    for epoch in (1, 2, 3):
        sink.write(pa.record_batch({"n": pa.array([epoch, epoch * 10]), "word": pa.array(["a", None])}))
        sink.pre_commit(epoch)
        if epoch < 3:
            sink.commit(epoch)
    sink.write(pa.record_batch({"n": pa.array([4]), "word": pa.array(["b"])}))
    read = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row.n for row in read.collect()) == [1, 2, 10, 20]
    assert read.dtypes == [("n", "bigint"), ("word", "string")]
    sink.close()
