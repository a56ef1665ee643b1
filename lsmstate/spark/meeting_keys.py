"""Keys of both inputs brought to one type: what Spark would compare in `left.k = right.k`.

Equal keys need equal hashes, so keys of different types are cast to their common type, which Spark itself names, before
anything else is done. The key column of the state then holds the cast value; where that is another value than the
row came with, the row's own stays beside it as `__own_NAME` and comes out again. Whole numbers are not cast here: they
are stored as int64 and narrowed when they come out, which loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lsmstate.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN = "__own_"  # and the name of a key: the value that the row came with
Pairs = Sequence[tuple[str, str]]
_COMPARABLE = (
    T.NumericType,
    T.BooleanType,
    T.StringType,
    T.CharType,
    T.VarcharType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.TimeType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
)


def with_meeting_keys(inputs: tuple[DataFrame, DataFrame], keys: Pairs) -> tuple[DataFrame, DataFrame]:
    """The inputs with their keys in common types. Raises SchemaError for keys that Spark cannot compare."""
    taken = sorted({name for frame in inputs for name in frame.columns if name.startswith(OWN)})
    if taken:
        raise SchemaError(f"names that begin with '__' are lsmstate's own: rename {', '.join(taken)}")
    casts: tuple[dict[str, T.DataType], dict[str, T.DataType]] = ({}, {})
    for pair in keys:
        if any(name not in frame.columns for frame, name in zip(inputs, pair, strict=True)):
            continue  # another check names all columns that there are
        kinds = [frame.schema[name].dataType for frame, name in zip(inputs, pair, strict=True)]
        for side, name, kind in zip(("left", "right"), pair, kinds, strict=True):
            _check_comparable(f"{side}: key {name!r}", name, kind)
        if kinds[0] == kinds[1] or all(isinstance(kind, T.IntegralType) for kind in kinds):
            continue
        common = _common(inputs, pair, kinds)
        for cast, name, kind in zip(casts, pair, kinds, strict=True):
            if kind != common:
                cast[name] = common
    left, right = (_cast(frame, cast) for frame, cast in zip(inputs, casts, strict=True))
    return left, right


def _cast(frame: DataFrame, casts: dict[str, T.DataType]) -> DataFrame:
    if not casts:
        return frame
    columns, own = [], []
    for field in frame.schema.fields:
        column = F.col(quoted(field.name))
        if field.name in casts:
            if _bare(field.dataType) != _bare(casts[field.name]):
                own.append(column.alias(OWN + field.name))
            column = column.cast(casts[field.name]).alias(field.name)
        columns.append(column)
    return frame.select(*columns, *own)


def _common(inputs: tuple[DataFrame, DataFrame], pair: tuple[str, str], kinds: list[T.DataType]) -> T.DataType:
    """The type that Spark gives to a union, which is that of a comparison too, save for texts without ANSI."""
    told = f"the keys {pair[0]!r} ({kinds[0].simpleString()}) and {pair[1]!r} ({kinds[1].simpleString()})"
    left, right = (frame.select(F.col(quoted(name)).alias("k")) for frame, name in zip(inputs, pair, strict=True))
    try:
        common = left.unionAll(right).schema["k"].dataType
    except AnalysisException as error:
        raise SchemaError(f"{told} cannot be compared; cast one of them") from error
    if _is_text_for_other(common, *kinds):
        raise SchemaError(f"{told}: without spark.sql.ansi.enabled, what is equal is not clear; cast one of them")
    return common


def _is_text_for_other(common: T.DataType, one: T.DataType, other: T.DataType) -> bool:
    """Whether, at any depth, what is no text became one."""
    if isinstance(common, T.ArrayType) and isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        return _is_text_for_other(common.elementType, one.elementType, other.elementType)
    if isinstance(common, T.StructType) and isinstance(one, T.StructType) and isinstance(other, T.StructType):
        parts = zip(common.fields, one.fields, other.fields, strict=True)
        return any(_is_text_for_other(*(field.dataType for field in part)) for part in parts)
    texts = [isinstance(kind, T.StringType | T.CharType | T.VarcharType | T.NullType) for kind in (one, other)]
    return isinstance(common, T.StringType) and not all(texts)


def _check_comparable(what: str, name: str, kind: T.DataType) -> None:
    """Raises SchemaError unless keys of this type can be compared by their bytes."""
    if isinstance(kind, T.ArrayType):
        _check_comparable(f"{what}: its elements", name, kind.elementType)
    elif isinstance(kind, T.StructType):
        for field in kind.fields:
            _check_comparable(f"{what}: its field {field.name!r}", name, field.dataType)
    elif isinstance(kind, T.MapType):
        raise SchemaError(f"{what} is a map, and Spark cannot compare maps; use array_sort(map_entries({name}))")
    elif isinstance(kind, T.StringType) and kind.collation != T.StringType().collation:
        raise SchemaError(
            f"{what} is {kind.simpleString()}: texts that differ may be equal in it, which a state cannot know; use "
            f"collate({name}, 'UTF8_BINARY'), after lower({name}) where letters of both cases are the same"
        )
    elif isinstance(kind, T.NullType):
        raise SchemaError(f"{what} is void; cast it to the type of the other side's key")
    elif not isinstance(kind, _COMPARABLE):
        raise SchemaError(f"{what} is {kind.simpleString()}, which Spark cannot compare; cast it")


def _bare(kind: T.DataType) -> T.DataType | tuple[object, ...]:
    """A type without what says nothing of its values: whether they may be NULL, and metadata."""
    if isinstance(kind, T.ArrayType):
        return "array", _bare(kind.elementType)
    if isinstance(kind, T.StructType):
        return "struct", *((field.name, _bare(field.dataType)) for field in kind.fields)
    return kind


def quoted(name: str) -> str:
    """A name as Spark reads it back."""
    return "`" + name.replace("`", "``") + "`"
