"""Values of columns as plain JSON values, and as short text for a cell.

Every value of every type that the engine stores has a form here, also one that Python's own types cannot hold (a
year above 9999, text that is not UTF-8), because a tool that looks into files must not fail on their content.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lsmstate.cli.wording import cut, safe, time_text

Plain: TypeAlias = bool | int | float | str | None
_CELL_MAX = 60
_DEPTH_MAX = 32


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
    return [_plain(scalar) for scalar in column]


def _numbers(column: pa.Array, kind: pa.DataType) -> list[int | None]:
    numbers: list[int | None] = column.view(kind).to_pylist()
    return numbers


def _moment(number: int, unit: Any) -> str:
    text = str(np.datetime64(number, unit))
    return f"{number} {unit}" if text == "NaT" else text


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
    text = str(value)
    if isinstance(value, str) and (text in ("", "NULL", "true", "false") or text != text.strip()):
        text = f"'{text}'"
    return cut(safe(text), _CELL_MAX)
