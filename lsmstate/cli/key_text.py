"""Keys as they are typed: text that becomes a value of the key column's type.

Numbers, texts and truth values as they are; dates and times as in ISO 8601, in UTC where the type has a zone; a span as
its microseconds; a binary in hexadecimal digits; lists and structs as JSON, with such texts inside. What the other
commands print can be typed again.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

_TRUTH = {"true": True, "false": False}


def key_array(text: str, kind: pa.DataType) -> pa.Array:
    """The value as an array of one. Raises ValueError where the text is no value of the type."""
    try:
        told = json.loads(text, parse_int=str, parse_float=str, parse_constant=str) if pt.is_nested(kind) else text
        return pa.array([_nested(told, kind)], kind)
    except (InvalidOperation, OverflowError, RecursionError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"no value of {kind}") from error


def _nested(told: Any, kind: pa.DataType) -> Any:
    """A value that JSON has told, with texts where they stand for others."""
    if told is None:
        return None
    if pt.is_struct(kind):
        if not isinstance(told, dict) or set(told) != {field.name for field in kind.fields}:
            raise ValueError(f"a struct has the fields {', '.join(field.name for field in kind.fields)}")
        return {field.name: _nested(told[field.name], field.type) for field in kind.fields}
    if pt.is_nested(kind):
        if not isinstance(told, list):
            raise ValueError("a list stands in brackets")
        return [_nested(part, kind.value_type) for part in told]
    if isinstance(told, bool):
        told = str(told).lower()
    if not isinstance(told, str):
        raise ValueError(f"no value of {kind}")
    return _leaf(told, kind)


def _leaf(text: str, kind: pa.DataType) -> Any:
    if pt.is_string(kind) or pt.is_large_string(kind):
        return text
    if pt.is_integer(kind):
        return int(text)
    if pt.is_floating(kind):
        return float(text)
    if pt.is_decimal(kind):
        return Decimal(text)
    if pt.is_boolean(kind):
        if text not in _TRUTH:
            raise ValueError("a truth value is true or false")
        return _TRUTH[text]
    if pt.is_date(kind):
        return _counted(text, "D")
    if pt.is_timestamp(kind):
        return _moment(text, kind)
    if pt.is_time(kind):
        return _counted(f"1970-01-01T{text}", kind.unit)
    if pt.is_duration(kind):
        return int(text.removesuffix(f" {kind.unit}"))
    return bytes.fromhex(text.removeprefix("0x"))


def _counted(text: str, unit: Literal["D", "us", "ns"]) -> int:
    """A date or a moment of any year, as a number of days or microseconds."""
    if not text.lstrip("-")[:1].isdigit():  # numpy knows words, such as now
        raise ValueError("a date begins with its year")
    return int(np.datetime64(text, unit).astype(np.int64))


def _moment(text: str, kind: pa.DataType) -> datetime | int:
    """A moment; one without a zone, where the type has one, is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # a year that Python does not know
        return _counted(text.removesuffix("Z") if kind.tz else text, "us")
    if kind.tz is None and moment.tzinfo is not None:
        raise ValueError("the key has no zone")
    return moment.replace(tzinfo=UTC) if kind.tz is not None and moment.tzinfo is None else moment
