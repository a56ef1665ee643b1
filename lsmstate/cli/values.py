"""Values of columns as plain JSON values, and as short text for a cell.

Every value of every type that the engine stores has a form here, also one that Python's own types cannot hold (a
year above 9999, text that is not UTF-8), because a tool that looks into files must not fail on their content.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lsmstate.cli.wording import cut, safe, time_text
from lsmstate.encodings import listed
from lsmstate.layout import is_listed, is_tree

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
_CELL_MAX = 60
_DEPTH_MAX = 32
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def plain_values(column: pa.Array, *, is_time: bool = False) -> list[Plain]:
    """The values of a column for JSON; those of the event time, whatever its type, as ISO times in UTC."""
    kind = column.type
    if is_time:
        return [time_text(ts) for ts in column.cast(pa.int64()).to_pylist()]
    if pt.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return [None if v is None else _moment(v, kind.unit) + zone for v in _numbers(column, pa.int64())]
    if pt.is_date32(kind):
        return [None if v is None else _moment(v, "D") for v in _numbers(column, pa.int32())]
    if pt.is_date64(kind):
        return [None if v is None else _moment(v, "ms") for v in _numbers(column, pa.int64())]
    if pt.is_duration(kind):
        return [None if v is None else f"{v} {kind.unit}" for v in _numbers(column, pa.int64())]
    if pt.is_time(kind):
        whole = pa.int32() if pt.is_time32(kind) else pa.int64()
        return [None if v is None else _clock(v, kind.unit) for v in _numbers(column, whole)]
    if is_tree(kind):
        return _tree_values(column)
    return [_plain(scalar) for scalar in column]


def _tree_values(column: pa.Array) -> list[Plain]:
    """Lists as lists, structs as objects, a map as the list of its entries: its keys may be anything."""
    kind, rows = column.type, len(column)
    valid = column.is_valid().to_pylist()
    values: list[Any]
    if is_listed(kind):
        offsets, parts = listed(column)
        inside = plain_values(parts)
        values = [inside[start:end] for start, end in itertools.pairwise(offsets.tolist())]
    elif pt.is_fixed_size_list(kind):
        each = kind.list_size
        inside = plain_values(column.values.slice(column.offset * each, rows * each))
        values = [inside[row * each : (row + 1) * each] for row in range(rows)]
    elif pt.is_struct(kind):
        names = [_field_name(kind, number) for number in range(kind.num_fields)]
        fields = [plain_values(column.field(number)) for number in range(kind.num_fields)]
        values = [{name: field[row] for name, field in zip(names, fields, strict=True)} for row in range(rows)]
    else:
        values = [None if pt.is_null(kind) else "0x"] * rows
    return [value if good else None for value, good in zip(values, valid, strict=True)]


def _field_name(kind: pa.DataType, number: int) -> str:
    """The name of a field; where others have it too, with its place."""
    name: str = kind.field(number).name
    return name if [field.name for field in kind].count(name) == 1 else f"{name}#{number}"


def _numbers(column: pa.Array, kind: pa.DataType) -> list[int | None]:
    numbers: list[int | None] = column.view(kind).to_pylist()
    return numbers


def _moment(number: int, unit: Any) -> str:
    text = str(np.datetime64(number, unit))
    return f"{number} {unit}" if text == "NaT" else text


def _clock(number: int, unit: str) -> str:
    """A time of day, with six or nine digits of a fraction that is not zero."""
    each = _UNITS[unit]
    if not 0 <= number < 86_400 * each:
        return f"{number} {unit}"
    seconds, rest = divmod(number, each)
    fraction = f"{rest * (_UNITS['ns'] // each):09}"
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction[:6] if fraction.endswith('000') else fraction}" if rest else text


def _plain(scalar: pa.Scalar) -> Plain:
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pt.is_boolean(kind) or pt.is_integer(kind):
        return bool(scalar.as_py()) if pt.is_boolean(kind) else int(scalar.as_py())
    if pt.is_floating(kind):
        number = float(scalar.as_py())
        return number if math.isfinite(number) else str(number)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return bytes(scalar.as_buffer()).decode("utf-8", "backslashreplace")
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return "0x" + bytes(scalar.as_buffer()).hex()
    return str(scalar)


def plain_json(value: Any, depth: int = 0) -> Any:
    """What JSON knows, with numbers that it does not know as text, and cut off where it nests too deep to print."""
    if depth > _DEPTH_MAX:
        return "..."
    if isinstance(value, dict):
        return {str(key): plain_json(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list):
        return [plain_json(part, depth + 1) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def cell_text(value: Plain) -> str:
    """A value in a cell: visible, on one line, of bounded length. Text that could mislead stands in quotes."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
    if isinstance(value, str) and (text in ("", "NULL", "true", "false") or text != text.strip()):
        text = f"'{text}'"
    return cut(safe(text), _CELL_MAX)
