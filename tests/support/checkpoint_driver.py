"""A driver with a catalog: `python -m tests.support.checkpoint_driver SETTINGS` joins both sides of a counting source.

SETTINGS is JSON: home, url, checkpoint (its name below home), start, end, pause_s (of each batch).
What comes out of batch N of a checkpoint lies in `out/CHECKPOINT/N.json`, written whole or not at all, a list of rows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lsmstate.spark import stream_join
from tests.support.counting_source import CountingSource
from tests.support.spark_session import make_session

WITHIN_S = 5


def joined(session: SparkSession, home: Path, url: str | None, first: int, end: int) -> DataFrame:
    """The join of the two sides, from a row on."""
    session.dataSource.register(CountingSource)
    source = session.readStream.format("counting").option("start", first).option("end", end).load()
    left, right = (
        source.where(F.col("side") == side).select("k", F.timestamp_micros("ts_us").alias("ts"), F.col("v").alias(name))
        for side, name in enumerate(("lv", "rv"))
    )
    return stream_join(
        left,
        right,
        on="k",
        how="left",
        time=("ts", "ts"),
        within=("0 seconds", f"{WITHIN_S} seconds"),
        watermark=("2 seconds", "2 seconds"),
        state=home / "state",
        partitions=2,
        job="counting",
        catalog=url,
        checkpoint_interval="0 seconds",
        retain=50,
    )


def start(frame: DataFrame, home: Path, checkpoint: str, pause_s: float = 0.0) -> Any:
    """The query, which writes what comes out by batch."""
    out = home / "out" / checkpoint
    out.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        rows = sorted(list(map(str, row)) for row in batch.collect())
        draft = out / f"{number}.draft"
        draft.write_text(json.dumps(rows))
        os.replace(draft, out / f"{number}.json")
        time.sleep(pause_s)

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(home / checkpoint))
    return writer.trigger(availableNow=True).start()


def main(told: dict[str, Any]) -> None:
    """Joins till the sources are empty."""
    session = make_session("local[2]")
    home = Path(told["home"])
    frame = joined(session, home, told["url"], told["start"], told["end"])
    query = start(frame, home, told["checkpoint"], told["pause_s"])
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
