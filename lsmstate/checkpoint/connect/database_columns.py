"""Arrow's columns as columns of a database: types, values, and what a table that is there already must have.

SQLite knows no decimals, so they are text there, exact; its times have no zone, so those with one are in UTC.
Threading: functions without state. Invariant: a value that the database could not give back as it was is refused
before anything is written; messages name columns, never values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import sqlalchemy as sa

from lsmstate.errors import SchemaError

NAME_MAX_BYTES = 63  # PostgreSQL cuts longer ones off
_WIDTHS = {"SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}


@dataclass(frozen=True, slots=True)
class Kind:
    """A type on both sides. family: what a column of the database must be. width: of whole numbers, in bytes."""

    family: str
    width: int
    type: sa.types.TypeEngine[Any]
    cast: pa.DataType | None = None  # what Arrow makes of the values first


def kind_of(where: str, field: pa.Field, is_sqlite: bool) -> Kind:
    """What a column becomes. Raises SchemaError for types that have no equal."""
    kind = field.type
    if pt.is_boolean(kind):
        return Kind("boolean", 0, sa.Boolean())
    if pt.is_uint64(kind) or pt.is_decimal(kind):
        digits, scale = (20, 0) if pt.is_uint64(kind) else (kind.precision, kind.scale)
        if is_sqlite:
            return Kind("text", 0, sa.Text(), pa.string())
        return Kind("decimal", 0, sa.Numeric(digits, scale), pa.decimal128(20, 0) if pt.is_uint64(kind) else None)
    if pt.is_integer(kind):
        width = kind.bit_width // 8 * (1 if pt.is_signed_integer(kind) else 2)
        return Kind(
            "integer", width, sa.SmallInteger() if width < 4 else sa.Integer() if width < 8 else sa.BigInteger()
        )
    if pt.is_floating(kind):
        return Kind("float", 0, sa.Double(), pa.float64())
    if pt.is_string(kind) or pt.is_large_string(kind):
        return Kind("text", 0, sa.Text())
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return Kind("binary", 0, sa.LargeBinary())
    if pt.is_date(kind):
        return Kind("date", 0, sa.Date(), pa.date32())
    if pt.is_timestamp(kind) and kind.unit != "ns":
        zoned = kind.tz is not None and not is_sqlite
        cast = None if kind.tz is None else pa.timestamp("us", "UTC")
        return Kind("timestamp with zone" if zoned else "timestamp", 0, sa.DateTime(timezone=zoned), cast)
    raise SchemaError(
        f"{where}: column {field.name!r} is {kind}, which a database cannot hold as it is; cast it to a number, text, "
        "binary, date or a timestamp in microseconds, or leave it out"
    )


def values_of(where: str, field: pa.Field, kind: Kind, column: pa.Array, is_sqlite: bool) -> list[Any]:
    """The values of a column as the driver takes them. Raises SchemaError for those that it would change or refuse."""
    if column.null_count and not field.nullable:
        raise SchemaError(f"{where}: column {field.name!r} holds NULLs and may hold none")
    try:
        cast = column if kind.cast is None else column.cast(kind.cast)
        values: list[Any] = cast.to_pylist()
    except (ValueError, OverflowError):  # Arrow's own errors are ValueErrors
        raise SchemaError(f"{where}: column {field.name!r} holds what a database has no room for") from None
    if is_sqlite and kind.family == "float" and pc.any(pc.is_nan(cast)).as_py():
        raise SchemaError(f"{where}: column {field.name!r} holds NaN, which SQLite would make NULL; replace it")
    if not is_sqlite and kind.family == "text" and pc.any(pc.match_substring(cast, "\0")).as_py():
        raise SchemaError(f"{where}: column {field.name!r} holds NUL in a text, which PostgreSQL cannot; remove it")
    return values


def check_table(
    where: str, kinds: Mapping[str, Kind], schema: pa.Schema, found: Sequence[Mapping[str, Any]], is_sqlite: bool
) -> None:
    """Raises SchemaError unless a table with these columns takes every row of a schema, and keeps it as it is."""
    there = {str(column["name"]): column for column in found}
    wrong = [f"{name!r} is missing" for name in kinds if name not in there]
    for name, column in there.items():
        if name not in kinds:
            if not column["nullable"] and column.get("default") is None and column.get("autoincrement") is not True:
                wrong.append(f"{name!r} needs a value")
        elif not _takes(kinds[name], column["type"], is_sqlite):
            wrong.append(f"{name!r} is {column['type']} instead of {kinds[name].type}")
        elif schema.field(name).nullable and not column["nullable"]:
            wrong.append(f"{name!r} takes no NULL")
    if wrong:
        raise SchemaError(
            f"{where}: the table does not fit the rows: {'; '.join(wrong)}. Change it, or name another one"
        )


def _takes(kind: Kind, has: Any, is_sqlite: bool) -> bool:
    """Whether a column of a database holds all values of a kind as they are. Numbers of SQLite are always wide."""
    narrow = 0 if is_sqlite else kind.width
    if kind.family == "integer":
        return isinstance(has, sa.Integer) and _WIDTHS.get(has.__visit_name__.upper(), 8) >= narrow
    if kind.family == "float":
        return isinstance(has, sa.Float) and (is_sqlite or has.__visit_name__.upper() != "REAL")
    if kind.family == "decimal":
        needed: Any = kind.type
        if not isinstance(has, sa.Numeric) or isinstance(has, sa.Float):
            return False
        if has.precision is None:
            return True
        scale = has.scale or 0
        return bool(scale >= needed.scale and has.precision - scale >= needed.precision - needed.scale)
    if kind.family == "text":
        return isinstance(has, sa.String) and has.length is None
    if kind.family.startswith("timestamp"):
        return isinstance(has, sa.DateTime) and (is_sqlite or has.timezone == (kind.family == "timestamp with zone"))
    return isinstance(has, _FAMILIES[kind.family])


_FAMILIES: dict[str, type[sa.types.TypeEngine[Any]]] = {
    "boolean": sa.Boolean,
    "binary": sa.LargeBinary,
    "date": sa.Date,
}
