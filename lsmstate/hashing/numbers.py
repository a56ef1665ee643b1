"""Values of a fixed width: numbers, truth values, dates, times. One word of XXH64 each.

This module owns which word a value is hashed as. It holds no state and may be called from any thread.

Spark hashes what its engine holds: a bool, byte, short, int or date as 4 bytes; a long, timestamp, time (in
nanoseconds) or day-time interval as 8; a float or double by its bits, where all NaN are one and -0.0 is 0.0. Spark has
no unsigned numbers: they are hashed as the next wider signed ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lsmstate.hashing.types import U64, batches, valid_rows, validity
from lsmstate.hashing.xxh64 import hash_4, hash_8
from lsmstate.native import kernel

_NAN_4, _NAN_8 = np.uint64(0x7FC00000), np.uint64(0x7FF8000000000000)
_NS_PER_US = np.uint64(1000)
Words = Callable[[pa.Array], U64]


def fold_longs(array: pa.Array, hashes: U64) -> None:
    """Hash int64 into `hashes`, in place."""
    if kernel is not None and len(array):
        kernel.hash_longs(_longs(array), validity(array), array.offset, hashes)
        return
    _fold(array, hashes, _longs, hash_8)


def fold_numbers(array: pa.Array, hashes: U64) -> None:
    """Hash values of another type of fixed width into `hashes`, in place. Requires: `is_number` of the type."""
    words, is_wide = _words(array.type)
    _fold(array, hashes, words, hash_8 if is_wide else hash_4)


def is_number(kind: pa.DataType) -> bool:
    """Whether this module hashes the type."""
    return bool(
        (pt.is_integer(kind) and kind != pa.uint64())
        or pt.is_boolean(kind)
        or pt.is_float32(kind)
        or pt.is_float64(kind)
        or pt.is_date32(kind)
        or pt.is_time64(kind)
        or (pt.is_timestamp(kind) and kind.unit == "us")
        or (pt.is_duration(kind) and kind.unit == "us")
    )


def _fold(array: pa.Array, hashes: U64, words: Words, hashed: Callable[[U64, U64], U64]) -> None:
    for batch, into in batches(array, hashes):
        np.copyto(into, hashed(words(batch), into), where=valid_rows(batch))


def _words(kind: pa.DataType) -> tuple[Words, bool]:
    """How values become words, and whether a word has 8 bytes instead of 4."""
    if pt.is_boolean(kind):
        return _bools, False
    if pt.is_floating(kind):
        return (_doubles, True) if pt.is_float64(kind) else (_floats, False)
    if pt.is_time64(kind) and kind.unit == "us":
        return lambda batch: _longs(batch) * _NS_PER_US, True
    if kind.bit_width == 64:
        return _longs, True
    if pt.is_uint32(kind):
        return lambda batch: _numbers(batch, np.dtype("<u4")).astype(np.uint64), True
    if kind.bit_width == 32:
        return lambda batch: _numbers(batch, np.dtype("<u4")).astype(np.uint64), False
    stored = np.dtype(f"<{'u' if pt.is_unsigned_integer(kind) else 'i'}{kind.bit_width // 8}")
    return lambda batch: _numbers(batch, stored).astype(np.int32).view(np.uint32).astype(np.uint64), False


def _longs(batch: pa.Array) -> U64:
    return _numbers(batch, np.dtype("<u8"))


def _bools(batch: pa.Array) -> U64:
    filled = pc.fill_null(batch, False) if batch.null_count else batch
    words: U64 = filled.to_numpy(zero_copy_only=False).astype(np.uint64)
    return words


def _floats(batch: pa.Array) -> U64:
    numbers = _numbers(batch, np.dtype("<f4"))
    words = numbers.view("<u4").astype(np.uint64)
    words[numbers == 0] = 0
    words[np.isnan(numbers)] = _NAN_4
    return words


def _doubles(batch: pa.Array) -> U64:
    numbers = _numbers(batch, np.dtype("<f8"))
    words: U64 = numbers.view("<u8").copy()
    words[numbers == 0] = 0
    words[np.isnan(numbers)] = _NAN_8
    return words


def _numbers(batch: pa.Array, stored: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values as they lie in the buffer, NULLs as whatever stands there."""
    return np.frombuffer(batch.buffers()[1], stored, len(batch), batch.offset * stored.itemsize)
