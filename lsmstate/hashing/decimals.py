"""Decimals: hashed by their unscaled value, as Spark holds it.

This module owns the forms of that value: of 18 digits or fewer it is a long; of more digits it is bytes, the shortest
two's complement, the highest byte first (Java's `BigInteger.toByteArray`). A uint64 is hashed as a decimal(20, 0). The
scale does not count, so columns of different scales have to be cast to one type first. Holds no state and may be
called from any thread.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lsmstate.hashing.texts import hash_spans, select
from lsmstate.hashing.types import U64, Bytes, batches, valid_rows
from lsmstate.hashing.xxh64 import hash_8

_LONG_DIGITS = 18


def fold_decimals(array: pa.Array, hashes: U64) -> None:
    """Hash decimals, or uint64, into `hashes`, in place."""
    kind = array.type
    is_long = pt.is_decimal(kind) and kind.precision <= _LONG_DIGITS
    for batch, into in batches(array, hashes):
        if is_long:
            np.copyto(into, hash_8(_longs(batch), into), where=valid_rows(batch))
            continue
        rows = select(valid_rows(batch))
        data = _highest_first(batch)
        count, width = data.shape
        skipped = _redundant(data)
        starts = np.arange(count) * width + skipped
        into[rows] = hash_spans(data.reshape(-1), starts[rows], (width - skipped)[rows], into[rows])


def _longs(batch: pa.Array) -> U64:
    """The unscaled values, of which all but the lowest 8 bytes repeat the sign."""
    width = batch.type.byte_width
    if width == 4:
        narrow = np.frombuffer(batch.buffers()[1], "<i4", len(batch), batch.offset * 4)
        return narrow.astype(np.int64).view(np.uint64)
    parts = width // 8
    words = np.frombuffer(batch.buffers()[1], "<u8", len(batch) * parts, batch.offset * width)
    return words[::parts]


def _highest_first(batch: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of the unscaled values, a row each."""
    width = batch.type.bit_width // 8
    data = np.frombuffer(batch.buffers()[1], np.uint8, len(batch) * width, batch.offset * width)
    turned = data.reshape(len(batch), width)[:, ::-1]
    if pt.is_uint64(batch.type):  # a byte of sign more
        turned = np.concatenate([np.zeros((len(batch), 1), np.uint8), turned], axis=1)
    return np.ascontiguousarray(turned)


def _redundant(data: Bytes) -> npt.NDArray[np.int64]:
    """How many bytes of each row say nothing but the sign, which the byte after them says too."""
    signs = data[:, :1] >> 7
    same = (data[:, :-1] == signs * np.uint8(255)) & (data[:, 1:] >> 7 == signs)
    counts: npt.NDArray[np.int64] = np.logical_and.accumulate(same, axis=1).sum(axis=1)
    return counts
