"""Two inputs whose rows agree in keys of many types, or differ in one: our streams, and tables of Spark's."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lsmstate.spark import stream_join
from tests.support.stream_run import drain

Values = Sequence[pa.Array]  # of each key column the same number of values, of which those at one place belong together
NOTHING: Mapping[str, str] = {}
FAR = 999_999  # the number of the last row
NEAR = "abs(unix_micros(r.ts) - unix_micros(l.ts)) <= 20000000"


def write(home: Path, seed: int, keys: tuple[Values, Values], rows: int = 150) -> None:
    """Two files a side, and a row of the far future that decides all others. Most rows have the values of one place in
    all keys; some have another in one."""
    rng = random.Random(seed)
    count = len(keys[0][0])
    places = [[rng.randrange(count)] * len(keys[0]) for _ in range(2 * rows)]
    for row in places:
        if rng.random() < 0.3:
            row[rng.randrange(len(row))] = rng.randrange(count)
    for side, values in enumerate(keys):
        mine = places[side::2]
        columns = [column.take([row[at] for row in mine]) for at, column in enumerate(values)]
        columns.append(pa.array([rng.randrange(60_000_000) for _ in mine], pa.timestamp("us", "UTC")))
        names = [f"{'lr'[side]}{at}" for at in range(len(values))]
        table = pa.table([*columns, pa.array(range(rows))], names=[*names, "ts", "n"])
        last = [
            *(pa.nulls(1, column.type) for column in values),
            pa.array([1 << 40], table["ts"].type),
            pa.array([FAR]),
        ]
        parts = [table.slice(0, rows // 2), table.slice(rows // 2), pa.table(last, names=table.column_names)]
        for number, part in enumerate(parts):
            where = home / "lr"[side]
            where.mkdir(parents=True, exist_ok=True)
            pq.write_table(part, where / f"{number}.parquet")
            os.utime(where / f"{number}.parquet", (number, number))  # Spark reads them by their age


def table(
    spark: SparkSession, home: Path, side: str, shared: bool = False, made: Mapping[str, str] = NOTHING
) -> DataFrame:
    """An input as Spark reads it at once. `shared`: its keys are called k0, k1 and so on. `made`: columns that Spark
    makes of what it reads, as SQL."""
    return _named(spark.read.parquet(str(home / side)), side, shared, made)


def joined(
    spark: SparkSession, home: Path, how: str, keys: int, *, shared: bool = False, made: Mapping[str, str] = NOTHING
) -> DataFrame:
    """Our join of both inputs as streams."""
    streams = []
    for side in "lr":
        frame = spark.readStream.schema(spark.read.parquet(str(home / side)).schema)
        streams.append(_named(frame.option("maxFilesPerTrigger", 1).parquet(str(home / side)), side, shared, made))
    return stream_join(
        *streams,
        on=[f"k{at}" if shared else (f"l{at}", f"r{at}") for at in range(keys)],
        how=how,
        time=("ts", "ts"),
        within=("-20 seconds", "20 seconds"),
        watermark=("1 hour", "1 hour"),
        state=home / "state",
        partitions=2,
    )


def _named(frame: DataFrame, side: str, shared: bool, made: Mapping[str, str]) -> DataFrame:
    frame = frame.withColumns({name: F.expr(made[name]) for name in frame.columns if name in made})
    names = {name: f"k{name[1:]}" for name in frame.columns if shared and name[0] == side}
    return frame.withColumnsRenamed(names)


def ours(spark: SparkSession, frame: DataFrame, home: Path) -> Counter[tuple[Any, ...]]:
    """What comes out of our join."""
    drain(frame, home)
    return as_text(spark.read.schema(frame.schema).parquet(str(home / "out")))


def as_text(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    """Rows that Python can compare, but the last ones: a NaN is NaN, and -0.0 is not 0.0."""
    frame = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))
    told = [
        (F.hex if kind == "binary" else F.to_json if kind[:5] in ("array", "struc") else _text)(F.col(name)).alias(name)
        for name, kind in frame.dtypes
    ]
    return Counter(tuple(row) for row in frame.select(told).collect() if str(FAR) not in row)


def _text(column: Any) -> Any:
    return column.cast("string")
