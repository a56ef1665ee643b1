"""Values that Arrow lets in and would not make itself, flat and inside of others."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lsmstate import Side
from lsmstate.key_types import is_key_type

BYTES = b"\xff\xfeA"
DAY_US = 86_400 * 10**6
NOON = datetime.time(12)


def _raw(kind: pa.DataType, ordinary: Any, odd: bytes) -> pa.Array:
    """An ordinary value, one of given bytes, and a NULL. Requires: a type of fixed width."""
    width = kind.bit_width // 8
    first = pa.array([ordinary], kind).buffers()[1].to_pybytes()[:width]
    buffers = [pa.py_buffer(b"\x03"), pa.py_buffer(first + odd.ljust(width, b"\0") + bytes(width))]
    return pa.Array.from_buffers(kind, 3, buffers, 1)


def _text(kind: pa.DataType, width: type[np.signedinteger[Any]]) -> pa.Array:
    """`ok`, bytes that are not UTF-8, and a NULL."""
    offsets = pa.py_buffer(np.array([0, 2, 5, 5], width))
    return pa.Array.from_buffers(kind, 3, [pa.py_buffer(b"\x03"), offsets, pa.py_buffer(b"ok" + BYTES)], 1)


TEXT = _text(pa.string(), np.int32)
FLAT: dict[str, pa.Array] = {
    "string": TEXT,
    "large_string": _text(pa.large_string(), np.int64),
    "time32": _raw(pa.time32("s"), NOON, (90_000).to_bytes(4, "little")),
    "time64": pa.array([5, DAY_US + 1, None], pa.int64()).cast(pa.time64("us")),
    "time_before": pa.array([5, -1, None], pa.int64()).cast(pa.time64("ns")),
    "date64": pa.array([0, 5, None], pa.int64()).cast(pa.date64()),
    "decimal32": _raw(pa.decimal32(3, 0), Decimal(7), (10**6).to_bytes(4, "little")),
    "decimal64": _raw(pa.decimal64(12, 1), Decimal(7), (10**15).to_bytes(8, "little")),
    "decimal128": _raw(pa.decimal128(3, 0), Decimal(7), (10**9).to_bytes(16, "little")),
    "decimal256": _raw(pa.decimal256(40, 2), Decimal(7), b"\xff" * 31 + b"\x7f"),
}
_ONE_EACH = pa.array([0, 1, 2, 3], pa.int32())
NESTED: dict[str, pa.Array] = {
    **{f"list of {name}": pa.ListArray.from_arrays(_ONE_EACH, array) for name, array in FLAT.items()},
    "large_list": pa.LargeListArray.from_arrays(_ONE_EACH.cast(pa.int64()), TEXT),
    "fixed_size_list": pa.FixedSizeListArray.from_arrays(TEXT, 1),
    "struct": pa.StructArray.from_arrays([FLAT["time64"], TEXT], ["t", "s"]),
    "map": pa.MapArray.from_arrays(
        pa.array([0, 1, 2, 2], pa.int32()), TEXT.slice(0, 2), FLAT["decimal128"].slice(0, 2)
    ),
    "map of lists of structs": pa.MapArray.from_arrays(
        _ONE_EACH,
        pa.array([1, 2, 3]),
        pa.ListArray.from_arrays(_ONE_EACH, pa.StructArray.from_arrays([TEXT, FLAT["date64"]], ["s", "d"])),
    ),
}
ODD = {**FLAT, **NESTED}
KEYS = {name: array for name, array in ODD.items() if is_key_type(array.type)}


def side_of(array: pa.Array, *, as_key: bool = False) -> Side:
    """A side with a column for such values."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", array.type)])
    return Side("odd", schema, keys="v" if as_key else "k", time="ts")


def rows_of(side: Side, array: pa.Array) -> pa.RecordBatch:
    """A row for each value."""
    numbers = pa.array(range(len(array)), pa.int64())
    return pa.RecordBatch.from_arrays([numbers, numbers, array], schema=side.schema)
