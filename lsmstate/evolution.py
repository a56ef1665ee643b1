"""How the columns of a side may change while its rows stay: what is allowed, and how old rows are read as new ones.

Columns are known by their names. A nullable column may come (old rows have NULL in it), any column may go that is
neither key nor time, whole numbers and floats may become wider, a column may become nullable, the order may change. A
column that went and comes back finds the values that are still in files, if its type fits them. Keys, times, retention
and bucket stay: rows lie in files by them. Nothing is rewritten; compaction writes what it merges with the new columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from lsmstate.errors import SchemaError
from lsmstate.schema import Side, difference

_KEYS_MOVE = "keys and times need a migration: read the rows, and append them to a new state"


@dataclass(frozen=True, slots=True)
class Adapted:
    """Where a column of a side comes from: the place among the columns that were written, None if it was not."""

    place: int | None
    casts: bool  # to the type that is wanted


def refusal(stored: Side, given: Side) -> str | None:
    """In words, what keeps the rows of one side from being read as those of another; None if nothing does."""
    if stored == given:
        return None
    if _without_columns(stored) != _without_columns(given):
        return difference(stored, given)
    found = []
    for name in (*given.keys, given.time):
        was, now = stored.schema.field(name).type, given.schema.field(name).type
        if was != now:
            found.append(f"{name!r} is {now} instead of {was}, and {_KEYS_MOVE}")
    for now in given.schema:
        if now.name in (*given.keys, given.time):
            continue
        if now.name not in stored.schema.names:
            if not now.nullable:
                found.append(f"{now.name!r} is new and not nullable: old rows have no value for it; make it nullable")
            continue
        was = stored.schema.field(now.name)
        if was.type != now.type and not widens(was.type, now.type):
            found.append(f"{now.name!r} is {now.type} instead of {was.type}: only whole numbers and floats may widen")
    for now in given.schema:
        if now.name in stored.schema.names and stored.schema.field(now.name).nullable and not now.nullable:
            found.append(f"{now.name!r} was nullable and is not any more: old rows may hold NULL")
    return "; ".join(found) or None


def widens(was: pa.DataType, now: pa.DataType) -> bool:
    """Whether every value of one type is one of the other, both being whole numbers or both floats."""
    if pt.is_floating(was) and pt.is_floating(now):
        return bool(was.bit_width < now.bit_width)
    if not (pt.is_integer(was) and pt.is_integer(now)) or was.bit_width >= now.bit_width:
        return False
    return bool(pt.is_signed_integer(now) or pt.is_unsigned_integer(was))


def adaptation(written: Side, wanted: Side) -> tuple[Adapted, ...] | None:
    """For each column that is wanted where it comes from; None if both sides have the same columns. A column that was
    written with a type that does not widen to the wanted one is another column of the same name: it was not written.
    Raises SchemaError where rows cannot be read as those of the wanted side."""
    if written.schema_id == wanted.schema_id:
        return None
    for name in (*wanted.keys, wanted.time):
        if name not in written.schema.names or written.schema.field(name).type != wanted.schema.field(name).type:
            raise SchemaError(f"{name!r} was written with another type")
    found = []
    for field in wanted.schema:
        place = written.schema.get_field_index(field.name)
        kind = None if place < 0 else written.schema.field(place).type
        if kind is not None and not field.nullable and written.schema.field(place).nullable:
            raise SchemaError(f"{field.name!r} was nullable when it was written, and is not any more")
        if kind is None or not (kind == field.type or widens(kind, field.type)):
            if not field.nullable:
                raise SchemaError(f"{field.name!r} was not written, and may not be NULL")
            found.append(Adapted(None, False))
        else:
            found.append(Adapted(place, kind != field.type))
        if kind is not None and widens(field.type, kind):
            raise SchemaError(f"{field.name!r} was written as {kind}, and is {field.type} here: open the state again")
    return tuple(found)


def _without_columns(side: Side) -> tuple[object, ...]:
    return side.name, tuple(side.keys), side.time, side.retention_us, side.bucket_us
