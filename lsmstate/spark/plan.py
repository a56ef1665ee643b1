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
from lsmstate.join.condition import Condition, check_condition
from lsmstate.join.home import Home
from lsmstate.join.late import check_names
from lsmstate.join.partition import PARTITIONS_MAX
from lsmstate.join.shape import check_they_meet
from lsmstate.join.spec import SIDES, JoinSpec
from lsmstate.schema import Side
from lsmstate.spark.columns import (
    DELAY,
    JOINED,
    WATERMARKED,
    Inputs,
    On,
    arrow_schema,
    join_keys,
    output_columns,
    side_of,
    watermark_delays,
)
from lsmstate.spark.listener import ACKS, listen
from lsmstate.spark.meeting import check_pair, kind_of, pace_of, positive_us
from lsmstate.spark.meeting_keys import quoted, with_meeting_keys
from lsmstate.spark.payload import carried, cast, emitted
from lsmstate.spark.recorder import check_url, watch
from lsmstate.spark.spans import Span, span_us
from lsmstate.spark.task import make_task
from lsmstate.spark.ticker import ticker_of
from lsmstate.spark.wiring import ACK, CLOCK, HASH, SIDE, Wiring, wire
from lsmstate.spark.worker_memory import check_worker_memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEFORE_ALL_US = -62_135_596_800_000_000  # the first time that Spark knows


def stream_join(
    left: DataFrame,
    right: DataFrame,
    on: On,
    *,
    how: str = "inner",
    time: tuple[str, str],
    within: tuple[Span, Span] | None = None,
    ttl: Span | None = None,
    instant: bool = False,
    asof: Span | None = None,
    watermark: tuple[Span, Span] | None = None,
    condition: Condition | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    late: str = "count",
    idle: int | Span | None = None,
    max_jump: Span | None = None,
    retain: int = 10,
    state: str | os.PathLike[str],
    partitions: int = 4,
    job: str | None = None,
    catalog: str | None = None,
    checkpoint_interval: Span = "60 seconds",
) -> DataFrame:
    """Joins two streams by key and time; gives a streaming DataFrame to write with any sink.

    on: the key columns, equal names or pairs of names. how: inner, left, right, full, left_semi or left_anti.
    time: the event time of each side. One of four says which times meet: within, the least and the greatest
    right.ts - left.ts; ttl, how far apart they may be; instant=True, equal times; asof, each left row meets the latest
    right row at or before it, at most that much before (how is inner or left).
    watermark: how late rows may come, per side; left out where the inputs carry withWatermark. condition: what a pair
    must fulfil besides, a pyarrow.compute.Expression or a function from a RecordBatch of pairs to booleans.
    suffixes: for columns whose names clash. late: "count" late rows, or "keep" them in the state. idle: after how many
    batches without rows, or how much event time of the other side, the watermark no longer waits for a side.
    max_jump: rows further after the newest one before are set aside. retain: how many epochs of the state can be read.
    state: a directory that driver and executors share. partitions: of the state, and so tasks of the join. job: its
    name, unless told that of the directory. catalog: the URL of the catalog that knows the job and its checkpoints,
    such as sqlite:///state/catalog.db; none unless told. checkpoint_interval: how often it gets one; 0 for each batch.
    """
    _check_whole("partitions", partitions, 1, PARTITIONS_MAX)
    _check_whole("retain", retain, 2, 1_000_000)
    for name, pair in (("time", time), ("suffixes", suffixes)):
        check_pair(name, pair)
    if job is not None and (not isinstance(job, str) or not job):
        raise ValueError(f"job must be a name, not {job!r}")
    if not all(isinstance(suffix, str) for suffix in suffixes):
        raise ValueError(f"suffixes must be two texts, not {suffixes!r}")
    if late not in ("count", "keep"):
        raise ValueError(f"late must be 'count' or 'keep', not {late!r}")
    check_condition(condition)
    kind = kind_of(how, within, ttl, instant, asof)
    inputs = (left, right)
    for name, frame in zip(SIDES, inputs, strict=True):
        if not frame.isStreaming:
            raise ValueError(f"{name} is not a streaming DataFrame; read it with spark.readStream, or use left.join")
    check_worker_memory(left.sparkSession)
    keys = join_keys(on)
    inputs = with_meeting_keys(inputs, keys)
    sides = (
        side_of("left", inputs[0], [pair[0] for pair in keys], time[0], kind.retention(0)),
        side_of("right", inputs[1], [pair[1] for pair in keys], time[1], kind.retention(1)),
    )
    check_they_meet(sides)
    pace = pace_of(watermark_delays(inputs, (time[0], time[1]), watermark), idle)
    output, picks = output_columns(inputs, keys, (suffixes[0], suffixes[1]), kind)
    path = _path(state)
    jump = None if max_jump is None else positive_us(max_jump, "max_jump")
    name = job or os.path.basename(path)
    ends = (suffixes[0], suffixes[1])
    spec = JoinSpec(name, path, partitions, kind, sides, pace, retain, condition, late == "keep", jump, ends)
    check_names(sides)
    interval_ms = _interval_ms(checkpoint_interval)
    if catalog is not None:
        check_url(catalog)
    wiring = wire(sides[0].schema, sides[1].schema, picks, arrow_schema(output))
    Home(LocalFileSystem(), path).bind(spec)
    times = {output.names[picks.index(place)] for place in _time_places(sides) if place in picks}
    joined = _planned(inputs, spec, wiring, output, times)
    watch(listen(left.sparkSession), _mark(spec), spec, catalog, interval_ms)
    return joined


def _time_places(sides: tuple[Side, Side]) -> tuple[int, int]:
    """Where the times stand among left columns followed by right ones."""
    left, right = (side.schema.get_field_index(side.time) for side in sides)
    return left, len(sides[0].schema) + right


def _planned(inputs: Inputs, spec: JoinSpec, wiring: Wiring, output: T.StructType, times: set[str]) -> DataFrame:
    session = inputs[0].sparkSession
    listen(session)
    kinds = _slot_kinds(inputs, spec, wiring)
    columns = [T.StructField(SIDE, T.ByteType()), T.StructField(HASH, T.LongType())]
    columns += [T.StructField(name, kind) for name, kind in zip(wiring.names, kinds, strict=True)]
    ticker = ticker_of(session, spec.path, T.StructType(columns), spec.pace if spec.waits else None)
    rows = [_tagged(frame, number, spec, wiring, kinds) for number, frame in enumerate(inputs)]
    united = rows[0].unionAll(rows[1]).unionAll(ticker)
    mark = _mark(spec)
    united = united.observe(f"lsmstate:in:{mark}", F.count(F.lit(1)).alias("rows"))
    given = [T.StructField(field.name, emitted(field.dataType)) for field in output.fields]
    scaled = F.shiftrightunsigned(F.col(HASH), 33) * F.lit(spec.partitions).cast("long")
    joined = united.repartitionById(spec.partitions, F.shiftright(scaled, 31).cast("int")).mapInArrow(
        make_task(spec, wiring), T.StructType([*given, T.StructField(ACK, T.StringType())])
    )
    metadata: dict[str, dict[str, object]] = {field.name: {JOINED: spec.job} for field in output.fields}
    known = {name for frame in inputs for field in frame.schema.fields for name in field.metadata}
    is_clocked = spec.waits and not known & {DELAY, WATERMARKED}
    if is_clocked:
        joined = _clocked(joined)
    for name, told in metadata.items():
        if is_clocked and name in times:
            told[DELAY] = 0
        if is_clocked or known & {DELAY, WATERMARKED}:
            told[WATERMARKED] = True
    joined = joined.observe(f"{ACKS}{mark}", F.collect_list(ACK).alias("acks"))
    joined = joined.filter(F.col(ACK).isNull()).drop(ACK)
    columns_out = []
    for field, same in zip(output.fields, given, strict=True):
        value = F.col(quoted(field.name))
        if same.dataType != field.dataType:
            value = cast(value, field.dataType, field.dataType)
        columns_out.append(value.alias(field.name, metadata=metadata[field.name]))
    return joined.select(columns_out)


def _clocked(joined: DataFrame) -> DataFrame:
    """Rows that waited for our watermark are older than the newest rows by more than any delay could tell. So Spark is
    given ours, by the acknowledgements, instead of reckoning one from the rows: what waited is not late behind us."""
    told = F.get_json_object(F.col(ACK), "$.clock").cast("long")
    clock = F.timestamp_micros(F.coalesce(told, F.lit(_BEFORE_ALL_US).cast("long")))
    return joined.withColumn(CLOCK, clock).withWatermark(CLOCK, "0 seconds")


def _tagged(frame: DataFrame, number: int, spec: JoinSpec, wiring: Wiring, kinds: list[T.DataType]) -> DataFrame:
    """An input as rows of the united stream."""
    side = spec.sides[number]
    if any(JOINED in field.metadata for field in frame.schema.fields):  # tasks of its own, with numbers of their own
        frame = frame.repartition(spec.partitions, *[F.col(quoted(key)) for key in side.keys])
    filled = dict(zip(wiring.of_side[number], side.schema.names, strict=True))
    own = {field.name: field.dataType for field in frame.schema.fields}
    columns = []
    for slot, (name, kind) in enumerate(zip(wiring.names, kinds, strict=True)):
        value = F.lit(None).cast(kind)
        if slot in filled:
            value = cast(F.col(quoted(filled[slot])), own[filled[slot]], kind)
        columns.append(value.alias(name))
    keys = [wiring.names[wiring.of_side[number][field]] for field in side.key_fields]
    rows = frame.select(F.lit(number).cast("tinyint").alias(SIDE), *columns)
    return rows.select(SIDE, F.xxhash64(*keys).alias(HASH), *wiring.names)


def _slot_kinds(inputs: Inputs, spec: JoinSpec, wiring: Wiring) -> list[T.DataType]:
    """The Spark type of every slot; keys of whole numbers travel as bigint."""
    kinds: dict[int, T.DataType] = {}
    for frame, side, slots in zip(inputs, spec.sides, wiring.of_side, strict=True):
        for field, slot in zip(frame.schema.fields, slots, strict=True):
            is_key = field.name in side.keys and isinstance(field.dataType, T.IntegralType)
            kinds[slot] = T.LongType() if is_key else carried(field.dataType)
    return [kinds[slot] for slot in range(wiring.slots)]


def _mark(spec: JoinSpec) -> str:
    """What tells the joins of a query apart: two may share a name."""
    return f"{spec.job}#{xxhash.xxh3_64_hexdigest(spec.path.encode())[:8]}"


def _interval_ms(span: Span) -> int:
    told = span_us(span, "checkpoint_interval")
    if told < 0:
        raise ValueError(f"checkpoint_interval: {span!r} must not be negative")
    return told // 1000


def _path(state: str | os.PathLike[str]) -> str:
    told = os.fspath(state)
    if "://" in told or told.startswith("file:"):
        raise ValueError(f"state: {told!r} is an address; give the path of a directory that driver and executors share")
    return LocalFileSystem().resolve(told)


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
