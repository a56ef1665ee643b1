"""One streaming join in a JVM of its own:

    python -m bench.spark_child ENGINE MASTER PARTITIONS INPUT WORK WARM [WITHIN DELAY HOW]

ENGINE is `lsmstate`, `ceiling` (the plan of lsmstate with a task that only counts, and hands back as many rows as the
join would), `rocksdb` (Spark's join, changelog checkpointing, state format 4) or `hdfs` (Spark's join, its default
store). WARM is how often the whole input first goes through the ceiling's plan, whatever the engine: a young JVM
compiles for some ten million rows, on the cores that the tasks need. WITHIN is the interval to both sides, DELAY that
of the watermark, in seconds; HOW is the type of join. All read the same files, one a side and batch, and write to the
noop sink. Prints a JSON list: milliseconds and rows of every batch; of ours also what the slowest task took, runs, and
bytes of the state.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import lsmstate.spark.plan
from lsmstate.join.spec import JoinSpec
from lsmstate.spark import progress, stream_join
from lsmstate.spark.task import make_task
from lsmstate.spark.wiring import Wiring

LEFT = "key bigint, ts timestamp, amount double, tag string"
RIGHT = "key bigint, ts timestamp, price double, label string"
_STATE = "spark.sql.streaming.stateStore"
_ROCKSDB = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.join.stateFormatVersion": "4",
}


def session(master: str, partitions: int, engine: str) -> SparkSession:
    """A session for one engine."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "6g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        **(_ROCKSDB if engine == "rocksdb" else {}),
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def joined(
    spark: SparkSession, engine: str, partitions: int, rows: str, work: str, within: int, delay: int, how: str
) -> DataFrame:
    """The join by one engine."""
    left, right = (
        spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(f"{rows}/{side}")
        for side, columns in (("left", LEFT), ("right", RIGHT))
    )
    if engine in ("rocksdb", "hdfs"):
        late = f"{delay} seconds"
        a, b = left.withWatermark("ts", late).alias("a"), right.withWatermark("ts", late).alias("b")
        near = f"b.ts >= a.ts - interval {within} seconds and b.ts <= a.ts + interval {within} seconds"
        return a.join(b, F.expr(f"a.key = b.key and {near}"), how)
    lsmstate.spark.plan.make_task = counting_task if engine == "ceiling" else make_task
    return stream_join(
        left,
        right,
        on="key",
        how=how,
        time=("ts", "ts"),
        within=(f"-{within} seconds", f"{within} seconds"),
        watermark=(f"{delay} seconds", f"{delay} seconds"),
        state=f"{work}/state",
        partitions=partitions,
    )


def counting_task(spec: JoinSpec, wiring: Wiring) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that takes all rows, and gives half as many: what a join with one match for each left row gives."""
    schema, picks = wiring.result_schema(), wiring.picks
    slots = [*wiring.of_side[0], *wiring.of_side[1]]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            half = batch.slice(0, batch.num_rows // 2)
            columns = [half.column(wiring.names[slots[pick]]) for pick in picks]
            arrays = [column.cast(field.type) for column, field in zip(columns, schema, strict=False)]
            yield pa.RecordBatch.from_arrays([*arrays, pa.nulls(half.num_rows, pa.string())], schema=schema)

    return task


def finished(result: DataFrame, work: str) -> StreamingQuery:
    """The query that has written all of a result."""
    writer = result.writeStream.format("noop").option("checkpointLocation", f"{work}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def main(
    engine: str,
    master: str,
    partitions: int,
    rows: str,
    work: str,
    warm: int,
    within: int = 20,
    delay: int = 3600,
    how: str = "inner",
) -> None:
    """Runs the join to its end."""
    spark = session(master, partitions, engine)
    for number in range(warm):
        place = f"{work}/warm-{number}"
        finished(joined(spark, "ceiling", partitions, rows, place, within, delay, "inner"), place)
    query = finished(joined(spark, engine, partitions, rows, work, within, delay, how), work)
    known = {epoch.batch_id: epoch for epoch in progress(query)} if engine == "lsmstate" else {}
    told = []
    for p in query.recentProgress:
        epoch = known.get(p.batchId)
        ours = {} if epoch is None else {"busy_ms": epoch.busy_ms, "runs": max(epoch.runs), "state": epoch.state_bytes}
        told.append({"ms": p.durationMs["triggerExecution"], "rows": p.numInputRows, **ours})
    sys.stdout.write(json.dumps(told) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5], *map(int, sys.argv[6:9]), *sys.argv[9:])
