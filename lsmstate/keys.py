"""The engine's key `[side | ts]` and the time buckets behind it.

A key is nine bytes: the side, then the start of a time bucket as a big-endian number with its sign bit flipped, so
that keys compare as (side, time), negative times included. Time arithmetic saturates at the ends of int64.
"""

from __future__ import annotations

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
    by = saturate(by)
    if not len(ts):
        return ts
    if int(ts.min()) + by >= TS_MIN and int(ts.max()) + by <= TS_MAX:
        return ts + by
    edge = TS_MAX - by if by > 0 else TS_MIN - by
    return np.where(ts > edge, TS_MAX, ts + by) if by > 0 else np.where(ts < edge, TS_MIN, ts + by)


def bucket_start(number: int, width: int) -> int:
    """The first time of a bucket."""
    return saturate(number * width)


def bucket_end(number: int, width: int) -> int:
    """The last time of a bucket."""
    return saturate((number + 1) * width - 1)
