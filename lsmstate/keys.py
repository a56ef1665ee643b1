"""The engine's key `[side | ts]` and the time buckets behind it.

A key is nine bytes: the side, then the start of a time bucket as a big-endian number with its sign bit flipped, so
that keys compare as (side, time), negative times included. Time arithmetic saturates at the ends of int64.
"""

from __future__ import annotations

import operator
import struct
from typing import NewType

import numpy as np
import numpy.typing as npt

Epoch = NewType("Epoch", int)
Seqno = NewType("Seqno", int)
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

TS_MIN = -(1 << 63)
TS_MAX = (1 << 63) - 1
_KEY = struct.Struct(">BQ")


def encode_key(side: int, ts: int) -> bytes:
    """The nine bytes of a key."""
    return _KEY.pack(side, ts - TS_MIN)


def decode_key(key: bytes) -> tuple[int, int]:
    """The side and the time of a key."""
    side, ts = _KEY.unpack(key)
    return side, ts + TS_MIN


def saturate(ts: int) -> int:
    """The nearest time that int64 can hold."""
    return min(max(ts, TS_MIN), TS_MAX)


def shifted(ts: I64, by: int) -> I64:
    """`ts + by`, saturating."""
    if not len(ts):
        return ts
    low, high = int(ts.min()), int(ts.max())
    if low + by >= TS_MIN and high + by <= TS_MAX and TS_MIN <= by <= TS_MAX:
        return ts + by
    if abs(by) > TS_MAX:  # in two steps, each within int64
        by = max(min(by, 1 << 64), -(1 << 64))
        step = TS_MAX if by > 0 else -TS_MAX
        return shifted(shifted(ts, step), by - step)
    if by > 0:
        return np.where(ts > TS_MAX - by, TS_MAX, np.minimum(ts, TS_MAX - by) + by)
    return np.where(ts < TS_MIN - by, TS_MIN, np.maximum(ts, TS_MIN - by) + by)


def time_us(value: object, what: str) -> int:
    """A time or span that a caller gave, as a plain number of microseconds."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{what} must be a whole number of microseconds, not {type(value).__name__}")
    return operator.index(value)


def bucket_start(number: int, width: int) -> int:
    """The first time of a bucket."""
    return saturate(number * width)


def bucket_end(number: int, width: int) -> int:
    """The last time of a bucket."""
    return saturate((number + 1) * width - 1)
