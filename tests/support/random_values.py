"""Values of every type that a column can have, from a seed: the same in every Python, as golden files rest on them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lsmstate.layout import children_of, is_listed

_DAY = datetime.date(1970, 1, 1)
FLAT = [
    *(pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "Asia/Tokyo")),
    *(pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns"), pa.month_day_nano_interval()),
    *(pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(38, 10), pa.decimal256(70, 5)),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(5), pa.binary(0), pa.null()),
]
NESTED = [
    pa.list_(pa.int64()),
    pa.large_list(pa.string()),
    pa.list_(pa.bool_(), 3),
    pa.list_(pa.int8(), 0),
    pa.list_(pa.null()),
    pa.struct([("a", pa.decimal128(20, 3)), ("b", pa.list_(pa.binary()))]),
    pa.struct([]),
    pa.map_(pa.string(), pa.timestamp("us", "UTC")),
    pa.map_(pa.struct([("x", pa.int32())]), pa.list_(pa.map_(pa.int64(), pa.large_binary()))),
    pa.list_(pa.list_(pa.struct([("p", pa.month_day_nano_interval()), ("q", pa.list_(pa.float32(), 2))]))),
]
ALL = [*FLAT, *NESTED]


def values_of(rng: Random, kind: pa.DataType, count: int, nulls: float = 0.25) -> list[Any]:
    """Some values, a share of them NULL, also inside of others."""
    return [None if rng.random() < nulls else _value(rng, kind, nulls) for _ in range(count)]


def array_of(rng: Random, kind: pa.DataType, count: int) -> pa.Array:
    """The same as an array, cut out of a longer one."""
    return pa.array(values_of(rng, kind, count + 3), kind).slice(2, count)


def _whole(rng: Random, below: int) -> int:
    return int(rng.random() * below)


def _value(rng: Random, kind: pa.DataType, nulls: float) -> Any:
    number = _whole(rng, 120)
    if pt.is_map(kind):
        count = _whole(rng, 4)
        return list(
            zip(values_of(rng, kind.key_type, count, 0), values_of(rng, kind.item_type, count, nulls), strict=True)
        )
    if is_listed(kind) or pt.is_fixed_size_list(kind):
        count = kind.list_size if pt.is_fixed_size_list(kind) else _whole(rng, 4)
        return values_of(rng, children_of(kind)[0], count, nulls)
    if pt.is_struct(kind):
        return {field.name: values_of(rng, field.type, 1, nulls)[0] for field in kind}
    if pt.is_boolean(kind):
        return number % 2 == 0
    if pt.is_float16(kind):
        return np.float16(number / 8)
    if pt.is_floating(kind):
        return number / 8
    if pt.is_decimal(kind):
        return Decimal(number) / 4
    if pt.is_date(kind):
        return _DAY + datetime.timedelta(days=number * 100)
    if pt.is_time(kind):
        return datetime.time(number % 24, number % 60, number % 60)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return "ü" * (number % 5) + str(number % 7)
    if pt.is_fixed_size_binary(kind):
        return bytes([number] * kind.byte_width)
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return bytes([number] * (number % 6))
    if pt.is_interval(kind):
        return (number, -number, number * 7)
    return None if pt.is_null(kind) else number
