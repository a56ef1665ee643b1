"""Columns of the two inputs: which are keys, which is the time, what comes out, and as which types."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql import types as T

from lsmstate.errors import SchemaError
from lsmstate.join.kinds import Kind
from lsmstate.join.shape import output_columns as output_names
from lsmstate.schema import Side
from lsmstate.spark.meeting_keys import OWN
from lsmstate.spark.payload import arrow_type, told
from lsmstate.spark.spans import Span, span_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

On: TypeAlias = str | Sequence[str | tuple[str, str]]
Inputs: TypeAlias = "tuple[DataFrame, DataFrame]"
_INTEGRAL = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
DELAY = "spark.watermarkDelayMs"  # in the metadata of a column that has a watermark
JOINED = "lsmstate.join"  # in the metadata of our results
WATERMARKED = "lsmstate.watermarked"  # there too, if Spark knows a watermark somewhere before


def join_keys(on: On) -> list[tuple[str, str]]:
    """The key columns of both sides, pair by pair."""
    pairs = [(key, key) if isinstance(key, str) else key for key in ([on] if isinstance(on, str) else on)]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise ValueError(f"on: {pair!r} is neither a column name nor a pair of them, such as ('ad_id', 'id')")
    if not pairs:
        raise ValueError("on: name at least one key column")
    return pairs


def side_of(name: str, frame: DataFrame, keys: list[str], time: str, retention: timedelta) -> Side:
    """An input as a side of the state: keys of whole numbers become int64, times microseconds."""
    fields = []
    for field in frame.schema.fields:
        kind = arrow_type(field.dataType)
        if kind is None:
            raise SchemaError(
                f"{name}: column {field.name!r} is {field.dataType.simpleString()}, which cannot travel to a task and "
                "back; cast it, give equal fields other names, or leave it out"
            )
        if field.name in keys and isinstance(field.dataType, _INTEGRAL):
            kind = pa.int64()
        fields.append(pa.field(field.name, kind))
    names = [field.name for field in fields]
    for column in (*keys, time):
        if column not in names:
            raise SchemaError(f"{name}: no column {column!r}; there are {', '.join(names)}")
    if not isinstance(frame.schema[time].dataType, T.TimestampType | T.TimestampNTZType):
        kind_name = frame.schema[time].dataType.simpleString()
        raise SchemaError(f"{name}: time {time!r} is {kind_name}; cast it to timestamp")
    return Side(name, pa.schema(fields), keys, time, retention)


def watermark_delays(inputs: Inputs, time: tuple[str, str], watermark: tuple[Span, Span] | None) -> tuple[int, int]:
    """How late rows may come, per side, in microseconds: as told, or as the inputs' withWatermark says."""
    if watermark is not None:
        if not isinstance(watermark, tuple | list) or len(watermark) != 2:
            raise ValueError(f"watermark: give one delay a side, such as ('10 seconds', '1 minute'), not {watermark!r}")
        left, right = (span_us(span, "watermark") for span in watermark)
        if left < 0 or right < 0:
            raise ValueError(f"watermark: {watermark!r} must not be negative")
        return left, right
    found = []
    for name, frame, column in zip(("left", "right"), inputs, time, strict=True):
        metadata = frame.schema[column].metadata
        delay = None if JOINED in metadata else metadata.get(DELAY)  # our own results wait longer than any delay says
        if delay is None:
            raise ValueError(
                f"{name}: no watermark; give watermark=('10 seconds', '10 seconds'), "
                f"or call withWatermark({column!r}, ...) on the input"
            )
        found.append(int(delay) * 1000)
    return found[0], found[1]


def output_columns(
    inputs: Inputs, keys: list[tuple[str, str]], suffixes: tuple[str, str], kind: Kind
) -> tuple[T.StructType, tuple[int, ...]]:
    """The columns of the result, and where they come from: left ones, then right ones; only left ones if no pairs do.

    A key of the same name on both sides comes once; other names that clash get the suffixes. A row's own value comes
    out, not the one that its key was compared as.
    """
    stored = [[f.name for f in frame.schema.fields] for frame in inputs]
    left, right = ([f for f in frame.schema.fields if not f.name.startswith(OWN)] for frame in inputs)
    once = {one for one, other in keys if one == other} if kind.pairs else set()
    others = [f.name for f in right] if kind.pairs else []
    columns = output_names([f.name for f in left], others, once, suffixes)
    of_right = {f.name: f.dataType for f in right}
    fields, picks = [], []
    for name, number in columns:
        side, field = (0, left[number]) if number < len(left) else (1, right[number - len(left)])
        value = field.dataType
        if field.name in once and kind.comes_alone(1):  # it has to hold the keys of the right side too
            value, place = _wider(value, of_right[field.name]), stored[side].index(field.name)
        else:
            own = OWN + field.name if OWN + field.name in stored[side] else field.name
            value, place = inputs[side].schema[own].dataType, stored[side].index(own)
        fields.append(T.StructField(name, told(value), True))
        picks.append(place + side * len(stored[0]))
    names = [field.name.lower() for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"the result would have {', '.join(twice)} twice; give other suffixes=, or rename a column")
    taken = sorted(name for name in names if name.startswith("__"))
    if taken:
        raise SchemaError(f"names that begin with '__' are lsmstate's own: rename {', '.join(taken)}")
    return T.StructType(fields), tuple(picks)


def _wider(one: T.DataType, other: T.DataType) -> T.DataType:
    """Of two whole numbers the wider one; of others, which are equal, the first."""
    if isinstance(one, _INTEGRAL) and isinstance(other, _INTEGRAL):
        return max(one, other, key=lambda kind: _INTEGRAL.index(type(kind)))
    return one


def arrow_schema(columns: T.StructType) -> pa.Schema:
    """The result's columns as tasks emit them."""
    return pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in columns.fields])
