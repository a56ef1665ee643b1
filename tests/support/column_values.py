"""Values of every type that the engine stores, four of each."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

LONG = "ü" * 3000  # a value of more than one block
DAY, TIME = datetime.date(1969, 12, 31), datetime.time(23, 59, 59, 999_999)
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
}
