"""Random values of every type that can be a key, with the edges of each, and how Python tells them apart."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

NANS_4 = np.array([0x7FC00000, 0xFFC00123, 0x7F800001], np.uint32).view(np.float32)
NANS_8 = np.array([0x7FF8000000000000, 0xFFF8000000000123, 0x7FF0000000000001], np.uint64).view(np.float64)
POINT = pa.struct([("x", pa.float64()), ("name", pa.string())])
FLAT = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.bool_(), pa.float32(), pa.float64(), pa.date32(), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("us"), pa.timestamp("us", tz="Europe/Berlin"), pa.duration("us")),
    *(pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(9, 2), pa.decimal128(18, 6), pa.decimal128(19, 0)),
    *(pa.decimal128(38, 10), pa.decimal256(70, 5)),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(3), pa.binary(40)),
]
NESTED = [
    pa.list_(pa.int64()),
    pa.large_list(pa.float32()),
    pa.list_(pa.string(), 2),
    POINT,
    pa.list_(POINT),
    pa.struct([("a", pa.list_(pa.decimal128(20, 1))), ("b", POINT), ("c", pa.bool_())]),
    pa.list_(pa.null()),
    pa.list_(pa.list_(pa.float64())),
]


def random_key(rng: random.Random, kind: pa.DataType, count: int, few: bool = False) -> pa.Array:
    """Values of a type, one in ten NULL; of `few` different ones, so that some are equal."""
    values = [None if rng.random() < 0.1 else _value(rng, kind, few) for _ in range(count)]
    if pt.is_float32(kind):  # from Python's floats, Arrow would lose the bits of a NaN
        made = np.array([0 if value is None else value for value in values], np.float32)
        where = [n for n, value in enumerate(values) if value is not None and value != value]
        made[where] = rng.choices(NANS_4.tolist() if few else list(NANS_4), k=len(where))
        return pa.array(made, mask=np.array([value is None for value in values]))
    return pa.array(values, kind)


def _value(rng: random.Random, kind: pa.DataType, few: bool) -> Any:
    if pt.is_struct(kind):
        return {f.name: None if rng.random() < 0.2 else _value(rng, f.type, few) for f in kind.fields}
    if pt.is_nested(kind):
        size = kind.list_size if pt.is_fixed_size_list(kind) else rng.randint(0, 3)
        return [None if rng.random() < 0.2 else _value(rng, kind.value_type, few) for _ in range(size)]
    if pt.is_null(kind):
        return None
    if pt.is_boolean(kind):
        return rng.random() < 0.5
    if pt.is_floating(kind):
        return rng.choice(_floats(rng, kind, few))
    if pt.is_decimal(kind):
        most = 10**kind.precision - 1
        number = rng.choice([0, 1, -1, most, -most, 127, 128, -128, -129, 255, 256] if few else _numbers(rng, most))
        return Decimal(number).scaleb(-kind.scale) if kind.precision < 28 else Decimal(f"{number}E-{kind.scale}")
    if pt.is_fixed_size_binary(kind):
        size = kind.byte_width
        return rng.choice([bytes(size), b"a" * size] if few else [bytes(size), rng.randbytes(size)])
    texts = ["", "a", "A", "ü", "x" * 31, "y" * 33] if few else ["", "日" * rng.randint(0, 60), rng.randbytes(9).hex()]
    if pt.is_string(kind) or pt.is_large_string(kind):
        return rng.choice(texts)
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return rng.choice([*(text.encode() for text in texts), b"\xff\0"])
    low, high = _range(kind)
    numbers = [low, high, 0, 1, 7] if few else [low, high, *_numbers(rng, high)]
    return min(max(rng.choice(numbers), low), high)


def _floats(rng: random.Random, kind: pa.DataType, few: bool) -> list[Any]:
    nans = NANS_8 if pt.is_float64(kind) else NANS_4
    common = [0.0, -0.0, 1.5, float("inf"), -float("inf"), *nans]
    return (
        common if few else [*common, *(float(np.float32(rng.gauss(0, 10.0 ** rng.randint(-9, 9)))) for _ in range(9))]
    )


def _numbers(rng: random.Random, most: int) -> list[int]:
    size = rng.getrandbits(rng.randint(1, most.bit_length())) % (most + 1)
    return [size, -size, most, -most]


def _range(kind: pa.DataType) -> tuple[int, int]:
    if pt.is_time64(kind):
        return 0, 86_400_000_000 * (1000 if kind.unit == "ns" else 1) - 1
    if pt.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def plain_key(array: pa.Array) -> list[Any]:
    """Each value as Python compares keys: equal to another iff Spark says so. A NULL at the top is None."""
    read = _reader(array.type)
    return [read(scalar) if scalar.is_valid else None for scalar in array]


def _reader(kind: pa.DataType) -> Callable[[pa.Scalar], Any]:
    if pt.is_struct(kind):
        readers = [_reader(field.type) for field in kind.fields]
        return lambda told: tuple(
            read(told[number]) if told[number].is_valid else "NULL" for number, read in enumerate(readers)
        )
    if pt.is_nested(kind):
        one = _reader(kind.value_type)
        return lambda told: tuple(one(part) if part.is_valid else "NULL" for part in told.values)
    if pt.is_floating(kind):
        return lambda told: ("NaN",) if told.as_py() != told.as_py() else (told.as_py() + 0.0,)
    if pt.is_timestamp(kind) or pt.is_duration(kind) or pt.is_time(kind) or pt.is_date(kind):
        return lambda told: (told.value,)
    return lambda told: (told.as_py(),)
