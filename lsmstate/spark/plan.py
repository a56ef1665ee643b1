"""The plan: how a join becomes a streaming DataFrame.

`left`, `right` (each tagged with its side and the hash of its key) and the ticker are united -> observed (so that Spark
never drops the tasks of an empty batch) -> sent to the partition of their hash -> joined by tasks -> their
acknowledgements observed and dropped. Everything that can be wrong with the arguments is found here, before the query
starts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import xxhash
from pyspark.sql import functions as F
from pyspark.sql import types as T

from iopool import LocalFileSystem
from lsmstate.join.home import Home
from lsmstate.join.partition import PARTITIONS_MAX
from lsmstate.join.spec import SIDES, JoinSpec, retentions
from lsmstate.spark.columns import (
    Inputs,
    On,
    arrow_schema,
    check_they_meet,
    join_keys,
    output_columns,
    side_of,
    watermark_delays,
)
from lsmstate.spark.listener import ACKS, listen
from lsmstate.spark.spans import Span, span_us
from lsmstate.spark.task import make_task
from lsmstate.spark.ticker import ticker_of
from lsmstate.spark.wiring import ACK, HASH, SIDE, Wiring, wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_JOINED = "lsmstate.join"  # in the metadata of our results, so that a chained join knows them


def stream_join(
    left: DataFrame,
    right: DataFrame,
    on: On,
    *,
    how: str = "inner",
    time: tuple[str, str],
    within: tuple[Span, Span],
    watermark: tuple[Span, Span] | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    retain: int = 10,
    state: str | os.PathLike[str],
    partitions: int = 4,
    job: str | None = None,
) -> DataFrame:
    """Joins two streams by key and time; gives a streaming DataFrame to write with any sink.

    on: the key columns, equal names or pairs of names. time: the event time of each side. within: the least and the
    greatest right.ts - left.ts. watermark: how late rows may come, per side; left out where the inputs carry
    withWatermark. suffixes: for columns whose names clash. retain: how many epochs of the state can be read.
    state: a directory that driver and executors share. partitions: of the state, and so tasks of the join. job: a name
    for people, unless told that of the directory.
    """
    if how != "inner":
        raise ValueError(f"how={how!r} is not supported yet; 'inner' is")
    _check_whole("partitions", partitions, 1, PARTITIONS_MAX)
    _check_whole("retain", retain, 2, 1_000_000)
    for name, pair in (("time", time), ("within", within), ("suffixes", suffixes)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{name} needs one value for each side, such as {name}=(LEFT, RIGHT), not {pair!r}")
    if job is not None and (not isinstance(job, str) or not job):
        raise ValueError(f"job must be a name, not {job!r}")
    if not all(isinstance(suffix, str) for suffix in suffixes):
        raise ValueError(f"suffixes must be two texts, not {suffixes!r}")
    lower, upper = (span_us(span, "within") for span in within)
    if lower > upper:
        raise ValueError(f"within: {within[0]!r} is above {within[1]!r}; give the least right.ts - left.ts first")
    inputs = (left, right)
    for name, frame in zip(SIDES, inputs, strict=True):
        if not frame.isStreaming:
            raise ValueError(f"{name} is not a streaming DataFrame; read it with spark.readStream, or use left.join")
    keys = join_keys(on)
    kept = retentions(lower, upper)
    sides = (
        side_of("left", left, [pair[0] for pair in keys], time[0], kept[0]),
        side_of("right", right, [pair[1] for pair in keys], time[1], kept[1]),
    )
    check_they_meet(sides)
    delays = watermark_delays(inputs, (time[0], time[1]), watermark)
    output, picks = output_columns(inputs, keys, (suffixes[0], suffixes[1]))
    path = _path(state)
    spec = JoinSpec(job or os.path.basename(path), path, partitions, lower, upper, sides, delays, retain)
    wiring = wire(sides[0].schema, sides[1].schema, picks, arrow_schema(output))
    Home(LocalFileSystem(), path).bind(spec)
    return _planned(inputs, spec, wiring, output)


def _planned(inputs: Inputs, spec: JoinSpec, wiring: Wiring, output: T.StructType) -> DataFrame:
    session = inputs[0].sparkSession
    listen(session)
    kinds = _slot_kinds(inputs, spec, wiring)
    columns = [T.StructField(SIDE, T.ByteType()), T.StructField(HASH, T.LongType())]
    columns += [T.StructField(name, kind) for name, kind in zip(wiring.names, kinds, strict=True)]
    ticker = ticker_of(session, spec.path, T.StructType(columns))
    rows = [_tagged(frame, number, spec, wiring, kinds) for number, frame in enumerate(inputs)]
    united = rows[0].unionAll(rows[1]).unionAll(ticker)
    mark = f"{spec.job}#{xxhash.xxh3_64_hexdigest(spec.path.encode())[:8]}"  # two joins of a query may share a name
    united = united.observe(f"lsmstate:in:{mark}", F.count(F.lit(1)).alias("rows"))
    scaled = F.shiftrightunsigned(F.col(HASH), 33) * F.lit(spec.partitions).cast("long")
    joined = united.repartitionById(spec.partitions, F.shiftright(scaled, 31).cast("int")).mapInArrow(
        make_task(spec, wiring), T.StructType([*output.fields, T.StructField(ACK, T.StringType())])
    )
    joined = joined.observe(f"{ACKS}{mark}", F.collect_list(ACK).alias("acks"))
    joined = joined.filter(F.col(ACK).isNull()).drop(ACK)
    return joined.select([F.col(_quoted(f.name)).alias(f.name, metadata={_JOINED: spec.job}) for f in output.fields])


def _tagged(frame: DataFrame, number: int, spec: JoinSpec, wiring: Wiring, kinds: list[T.DataType]) -> DataFrame:
    """An input as rows of the united stream."""
    side = spec.sides[number]
    if any(_JOINED in field.metadata for field in frame.schema.fields):  # tasks of its own, with numbers of their own
        frame = frame.repartition(spec.partitions, *[F.col(_quoted(key)) for key in side.keys])
    filled = dict(zip(wiring.of_side[number], side.schema.names, strict=True))
    columns = []
    for slot, (name, kind) in enumerate(zip(wiring.names, kinds, strict=True)):
        value = F.col(_quoted(filled[slot])) if slot in filled else F.lit(None)
        columns.append(value.cast(kind).alias(name))
    keys = [wiring.names[wiring.of_side[number][field]] for field in side.key_fields]
    rows = frame.select(F.lit(number).cast("tinyint").alias(SIDE), *columns)
    return rows.select(SIDE, F.xxhash64(*keys).alias(HASH), *wiring.names)


def _slot_kinds(inputs: Inputs, spec: JoinSpec, wiring: Wiring) -> list[T.DataType]:
    """The Spark type of every slot; keys of whole numbers travel as bigint."""
    kinds: dict[int, T.DataType] = {}
    for frame, side, slots in zip(inputs, spec.sides, wiring.of_side, strict=True):
        for field, slot in zip(frame.schema.fields, slots, strict=True):
            is_key = field.name in side.keys and isinstance(field.dataType, T.IntegralType)
            kinds[slot] = T.LongType() if is_key else field.dataType
    return [kinds[slot] for slot in range(wiring.slots)]


def _path(state: str | os.PathLike[str]) -> str:
    told = os.fspath(state)
    if "://" in told or told.startswith("file:"):
        raise ValueError(f"state: {told!r} is an address; give the path of a directory that driver and executors share")
    return LocalFileSystem().resolve(told)


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
