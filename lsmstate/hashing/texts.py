"""Strings and binaries: XXH64 over their bytes, whatever their lengths.

This module owns how values that differ in length are hashed together. It holds no state and may be called from any
thread.

Values differ in length, so a step of XXH64 first picks its rows:

* For the stripes, the long rows are sorted by length, longest first. The rows that have a stripe number k are
  then a prefix, which shrinks as k grows. The cost follows the bytes that are there, plus a few numpy calls
  per stripe of the longest string: one 10 KB string among short ones costs its own 320 stripes, no more.
* For a step of the tail, the rows are those whose length says that they have such a word.

Words are read where they lie in Arrow's buffer, through a view whose items overlap: item i is the `width`
bytes at offset i. The view ends with the last whole word of the buffer, so numpy's own bounds check keeps
every read inside.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lsmstate.hashing.types import I64, U64, Bytes, batches, valid_rows, validity
from lsmstate.hashing.xxh64 import LANES, MIX, P1, P2, P4, P5, avalanche, rotate
from lsmstate.native import kernel

_STRIPE_BYTES = 32


def fold_texts(array: pa.Array, hashes: U64) -> None:
    """Hash strings or binaries of any length into `hashes`, in place."""
    if kernel is not None and len(array):
        width = _offset_bytes(array.type)
        _, offset_buffer, data = array.buffers()
        offsets = memoryview(offset_buffer)[array.offset * width : (array.offset + len(array) + 1) * width]
        kernel.hash_bytes(offsets, width, data or b"", validity(array), array.offset, hashes)
        return
    for batch, into in batches(array, hashes):
        rows = select(valid_rows(batch))
        data, starts, lengths = _locate(batch)
        into[rows] = hash_spans(data, starts[rows], lengths[rows], into[rows])


def fold_fixed(array: pa.Array, hashes: U64) -> None:
    """Hash binaries of one length into `hashes`, in place."""
    width = array.type.byte_width
    for batch, into in batches(array, hashes):
        rows = select(valid_rows(batch))
        data = np.frombuffer(batch.buffers()[1] or b"", np.uint8)
        starts = (np.arange(len(batch)) + batch.offset) * width
        into[rows] = hash_spans(data, starts[rows], np.full(len(batch), width)[rows], into[rows])


def _locate(batch: pa.Array) -> tuple[Bytes, I64, I64]:
    """Give the data buffer of a batch, and each value's start in it and length in bytes."""
    _, offset_buffer, data_buffer = batch.buffers()
    width = _offset_bytes(batch.type)
    offsets = np.frombuffer(offset_buffer, f"<i{width}", len(batch) + 1, batch.offset * width)
    offsets = offsets.astype(np.int64)
    return np.frombuffer(data_buffer or b"", np.uint8), offsets[:-1], np.diff(offsets)


def _offset_bytes(kind: pa.DataType) -> int:
    return 8 if pt.is_large_string(kind) or pt.is_large_binary(kind) else 4


def hash_spans(data: Bytes, starts: I64, lengths: I64, seeds: U64) -> U64:
    """Give XXH64 of each span of the data, with its own seed."""
    hashes = seeds + P5
    long = np.flatnonzero(lengths >= _STRIPE_BYTES)
    if len(long):
        long = long[np.argsort(-lengths[long])]
        hashes[long] = _hash_stripes(data, starts[long], lengths[long] // _STRIPE_BYTES, seeds[long])
    hashes += lengths.view(np.uint64)

    tails = (lengths & 31).astype(np.uint8)  # bytes make the masks below cheap
    wide, half, single = (starts + (lengths & -size) for size in (32, 8, 4))  # where each kind of word begins
    for width, mask, first, skip in (
        (8, tails >= 8, wide, 0),
        (8, tails >= 16, wide, 8),
        (8, tails >= 24, wide, 16),
        (4, tails & 4 == 4, half, 0),
        (1, tails & 3 >= 1, single, 0),
        (1, tails & 3 >= 2, single, 1),
        (1, tails & 3 == 3, single, 2),
    ):
        if mask.any():
            rows = select(mask)
            words = _gather(data, first[rows] + skip, width)
            hashes[rows] = MIX[width](hashes[rows], words)
    return avalanche(hashes)


def _hash_stripes(data: Bytes, starts: I64, counts: I64, seeds: U64) -> U64:
    """Give the hash of the first `counts` stripes of each string. Requires: counts descend, none is 0."""
    lanes = seeds[:, None] + LANES
    stripes = _overlapping(data, _STRIPE_BYTES)
    active = len(counts)
    for k in range(int(counts[0])):
        while counts[active - 1] <= k:
            active -= 1
        words: U64 = stripes[starts[:active] + k * _STRIPE_BYTES].view("<u8").reshape(active, 4)
        lanes[:active] = rotate(lanes[:active] + words * P2, 31) * P1
    folds = rotate(lanes * P2, 31) * P1
    hashes = rotate(lanes[:, 0], 1)
    for i, bits in ((1, 7), (2, 12), (3, 18)):
        hashes += rotate(lanes[:, i], bits)
    for i in range(4):
        hashes = (hashes ^ folds[:, i]) * P1 + P4
    return hashes


def _overlapping(data: Bytes, width: int) -> npt.NDArray[np.void]:
    """Give a view of the data whose item i is the `width` bytes at i. Requires: len(data) >= width."""
    return np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))


def _gather(data: Bytes, positions: I64, width: int) -> U64:
    """Give the little-endian words of `width` bytes at the positions. Requires: width is 1, 4 or 8."""
    return _overlapping(data, width)[positions].view(f"<u{width}").astype(np.uint64, copy=False)


def select(mask: npt.NDArray[np.bool_]) -> slice | I64:
    """Give an index of the rows under the mask: a slice, which numpy need not copy, when it is all rows."""
    return slice(None) if mask.all() else np.flatnonzero(mask)
