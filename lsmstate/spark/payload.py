"""Types of columns: how Spark's values travel to the tasks, lie in the state as Arrow's, and come back.

Four forms of a type. **Its own**: that of the input. **Carried**: that of the united stream, where columns of both
inputs share slots; so it is the widest of its kind, and all that may be NULL inside of it may be. **Emitted**: what
tasks say that they give. **Told**: that of the result, which is its own, except that what lies inside of arrays, maps
and structs with intervals may be NULL. Intervals of years and months travel as numbers of months and calendar
intervals as text, because mapInArrow takes neither back; collations stay behind, and are there again in the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
from pyspark.sql import types as T

if TYPE_CHECKING:
    from pyspark.sql import Column

_FLAT: dict[type[T.DataType], pa.DataType] = {
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    T.BooleanType: pa.bool_(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", tz="UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.DayTimeIntervalType: pa.duration("us"),
    T.YearMonthIntervalType: pa.int32(),  # of months
    T.CalendarIntervalType: pa.string(),
    T.TimeType: pa.time64("ns"),
    T.NullType: pa.null(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
}
_VARIANT = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata")])
_BECOMES_TEXT = (T.CalendarIntervalType, T.CharType, T.VarcharType)
_NO_MAP_KEYS = (T.YearMonthIntervalType, T.CalendarIntervalType, T.NullType)
_TIME_DIGITS = 9 if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 3) else 6


def arrow_type(kind: T.DataType) -> pa.DataType | None:
    """The Arrow type of a Spark type; None for those that cannot travel to a task and back."""
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.VariantType):
        return _VARIANT
    if isinstance(kind, T.ArrayType):
        element = arrow_type(kind.elementType)
        return None if element is None else pa.list_(pa.field("element", element))
    if isinstance(kind, T.MapType):
        key, value = arrow_type(kind.keyType), arrow_type(kind.valueType)
        if key is None or value is None or isinstance(kind.keyType, _NO_MAP_KEYS):
            return None
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))
    if isinstance(kind, T.StructType):
        parts = [arrow_type(field.dataType) for field in kind.fields]
        if any(part is None for part in parts) or len(set(kind.names)) < len(parts):
            return None
        return pa.struct(list(zip(kind.names, parts, strict=True)))
    if isinstance(kind, T.TimeType) and kind.precision > _TIME_DIGITS:
        return None
    return _FLAT.get(type(kind))


def carried(kind: T.DataType) -> T.DataType:
    """The type in which values travel to the tasks."""
    return _loose(kind, _carried)


def _carried(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.DayTimeIntervalType):
        return T.DayTimeIntervalType()
    if isinstance(kind, T.TimeType):
        return T.TimeType(_TIME_DIGITS)
    return T.StringType() if isinstance(kind, T.StringType) else _emitted(kind)


def emitted(kind: T.DataType) -> T.DataType:
    """The type in which tasks give values of a told type back."""
    return kind if told(kind) == kind and not _is_changed(kind) else _loose(kind, _emitted)


def _emitted(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.YearMonthIntervalType):
        return T.IntegerType()
    return T.StringType() if isinstance(kind, _BECOMES_TEXT) else kind


def told(kind: T.DataType) -> T.DataType:
    """The type of a column of the result."""
    return _loose(kind, lambda leaf: leaf) if _is_changed(kind) else kind


def _is_changed(kind: T.DataType) -> bool:
    """Whether values do not travel as they are, or pyspark cannot tell of the type where they may not be NULL."""
    if isinstance(kind, T.ArrayType):
        return _is_changed(kind.elementType) or (isinstance(kind.elementType, T.NullType) and not kind.containsNull)
    if isinstance(kind, T.MapType):
        void = isinstance(kind.valueType, T.NullType) and not kind.valueContainsNull
        return void or _is_changed(kind.keyType) or _is_changed(kind.valueType)
    if isinstance(kind, T.StructType):
        void = any(isinstance(field.dataType, T.NullType) and not field.nullable for field in kind.fields)
        return void or any(_is_changed(field.dataType) for field in kind.fields)
    return isinstance(kind, (T.YearMonthIntervalType, *_BECOMES_TEXT))


def cast(value: Column, kind: T.DataType, wanted: T.DataType) -> Column:
    """A value as another form of a type. `kind` is the one of the two that has its intervals, whole years or months
    among them: only an interval of months is a number."""
    months = _loose(kind, lambda leaf: T.YearMonthIntervalType(1, 1) if isinstance(leaf, _YEARS) else leaf)
    return (value.cast(months) if _loose(kind, lambda leaf: leaf) != months else value).cast(wanted)


_YEARS = T.YearMonthIntervalType


def _loose(kind: T.DataType, leaf: Callable[[T.DataType], T.DataType]) -> T.DataType:
    """The type with all leaves changed, where all that may be NULL may be."""
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_loose(kind.elementType, leaf), True)
    if isinstance(kind, T.MapType):
        return T.MapType(_loose(kind.keyType, leaf), _loose(kind.valueType, leaf), True)
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _loose(field.dataType, leaf), True) for field in kind.fields])
    return leaf(kind)
