"""Values of every type that the engine stores, four of each."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lsmstate.layout import DEPTH_MAX

LONG = "ü" * 3000  # a value of more than one block
DAY, TIME = datetime.date(1969, 12, 31), datetime.time(23, 59, 59, 999_999)


def deep(depth: int) -> pa.DataType:
    """A list of lists of lists ... of whole numbers."""
    return pa.list_(deep(depth - 1)) if depth else pa.int32()


def nested(depth: int, value: Any) -> Any:
    """A value of such a type."""
    return [nested(depth - 1, value)] if depth else value


VALUES: dict[pa.DataType, list[Any]] = {
    **{kind: [0, 1, 127, 255] for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{kind: [0, -1, 127, -128] for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind: [0.0, -0.0, 1.5, float("inf")] for kind in (pa.float32(), pa.float64())},
    pa.float16(): [np.float16(0.5), np.float16(-2), np.float16("inf"), np.float16(0)],
    pa.bool_(): [True, False, True, True],
    pa.date32(): [DAY, datetime.date(2024, 2, 29), DAY, DAY],
    pa.date64(): [DAY, datetime.date(2024, 2, 29), DAY, DAY],
    pa.time32("s"): [TIME.replace(microsecond=0)] * 4,
    pa.time32("ms"): [TIME.replace(microsecond=999_000)] * 4,
    pa.time64("us"): [TIME] * 4,
    pa.time64("ns"): [TIME] * 4,
    **{pa.timestamp(unit): [0, -1, 2**40, 5] for unit in ("s", "ms", "us", "ns")},
    pa.timestamp("us", tz="Europe/Berlin"): [0, -(2**63), 2**63 - 1, 5],
    **{pa.duration(unit): [0, -1, 2**40, 5] for unit in ("s", "ms", "us", "ns")},
    pa.decimal32(7, 2): [Decimal("1.25"), Decimal("-99999.99"), Decimal(0), Decimal(7)],
    pa.decimal64(15, 3): [Decimal("1.125"), Decimal("-9999999.999"), Decimal(0), Decimal(7)],
    pa.decimal128(38, 10): [Decimal("1.25"), Decimal("-1234567890123.0000000001"), Decimal(0), Decimal(7)],
    pa.decimal256(70, 5): [Decimal("1.25"), Decimal(-(10**60)), Decimal(0), Decimal(7)],
    pa.binary(3): [b"abc", b"\0\0\0", b"\xff\xfe\xfd", b"xyz"],
    pa.binary(5000): [b"a" * 5000, bytes(5000), b"\xff" * 5000, b"z" * 5000],
    pa.month_day_nano_interval(): [(1, 2, 3), (-1, 0, 5), (0, 0, 0), (12, 31, -1)],
    **{kind: ["", "a", LONG, "ende"] for kind in (pa.string(), pa.large_string())},
    **{kind: [b"", b"\0", LONG.encode(), b"\xff"] for kind in (pa.binary(), pa.large_binary())},
    pa.binary(0): [b""] * 4,
    pa.null(): [None] * 4,
    **{make(pa.int64()): [[], [1, None], [None], list(range(300))] for make in (pa.list_, pa.large_list)},
    pa.list_(pa.string()): [["a", None, ""], [], [LONG], [None, None]],
    pa.list_(pa.bool_(), 3): [[True, None, False], [None] * 3, [True] * 3, [False] * 3],
    pa.list_(pa.float32(), 0): [[]] * 4,
    pa.list_(pa.null()): [[], [None], [None] * 9, [None] * 2],
    pa.list_(pa.binary(0)): [[], [b"", None], [b""], [None]],
    pa.list_(pa.list_(pa.decimal128(5, 2))): [[[], None], [], [[Decimal("1.25"), None]], [None]],
    pa.struct([("a", pa.int64()), ("b", pa.string())]): [
        {"a": 1, "b": None},
        {"a": None, "b": None},
        {"a": 2, "b": LONG},
        {"a": 3, "b": ""},
    ],
    pa.struct([]): [{}] * 4,
    pa.struct([pa.field("t", pa.timestamp("us", tz="UTC"), nullable=False), pa.field("d", pa.date32())]): [
        {"t": 0, "d": DAY},
        {"t": -5, "d": None},
        {"t": 2**40, "d": DAY},
        {"t": 1, "d": DAY},
    ],
    pa.map_(pa.string(), pa.int32()): [[], [("a", 1), ("", None)], [(LONG, 2)], [("z", None)]],
    pa.map_(pa.int64(), pa.list_(pa.struct([("x", pa.list_(pa.bool_(), 2))]))): [
        [(1, [{"x": [True, None]}, None, {"x": None}])],
        [(1, None), (2, [])],
        [],
        [(-1, [{"x": [False, False]}])],
    ],
    pa.list_(pa.month_day_nano_interval()): [[(1, 2, 3), None], [], [(0, 0, 0)], [None]],
    deep(DEPTH_MAX): [nested(DEPTH_MAX, 1), nested(DEPTH_MAX, None), nested(3, None), []],
}
