"""Spark's `xxhash64` of the join key, for a whole batch of rows at once.

This module owns `hash_keys`, and knows where equal hashes mean equal keys (`tells_apart`). It holds no state and may be
called from any thread.

**What is computed.** `F.xxhash64(c1, c2, ...)` hashes the columns of a row from left to right: the first
with seed 42, and each result is the seed of the next column. A NULL leaves the hash as it was. A value is
hashed by XXH64 over its bytes: the 8 little-endian bytes of an int64, or the UTF-8 bytes of a string.

**XXH64 in four parts.** All arithmetic is modulo 2**64.

1. *Stripes.* A value of 32 bytes or more is first eaten 32 bytes at a time: four lanes take one 8-byte word
   each, and at the end they are folded into one hash. A shorter value starts from `seed + P5` instead.
2. *Length.* The length in bytes is added.
3. *Tail.* What the stripes left (0 to 31 bytes) is mixed in: up to three words of 8 bytes, up to one of
   4 bytes, and up to three single bytes.
4. *Avalanche.* Three shifts and two multiplications spread every bit over the hash.

**How it is vectorised.** Each step is a numpy expression over all rows that take part in it. An int64 is
always one tail word. Strings differ in length, so a step first picks its rows:

* For the stripes, the long rows are sorted by length, longest first. The rows that have a stripe number k are
  then a prefix, which shrinks as k grows. The cost follows the bytes that are there, plus a few numpy calls
  per stripe of the longest string: one 10 KB string among short ones costs its own 320 stripes, no more.
* For a step of the tail, the rows are those whose length says that they have such a word.

Words are read where they lie in Arrow's buffer, through a view whose items overlap: item i is the `width`
bytes at offset i. The view ends with the last whole word of the buffer, so numpy's own bounds check keeps
every read inside.

**Memory.** Rows are hashed `_BATCH_ROWS` at a time. Apart from the result, the working set is about 2 MB at
most, whatever the number of rows and their lengths, and mostly stays in the L2 cache.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_U64 = npt.NDArray[np.uint64]
_I64 = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

_SEED = 42
_BATCH_ROWS = 8192
_STRIPE_BYTES = 32

# Numpy scalars, not Python ints: the arithmetic must stay in uint64.
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
# What is added to the seed to start the four lanes: P1 + P2, P2, 0 and -P1.
_LANES = np.array([(int(_P1) + int(_P2)) % 2**64, int(_P2), 0, 2**64 - int(_P1)], np.uint64)


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray]) -> _U64:
    """Give the bits of Spark's `xxhash64(*columns)` for each row, as uint64.

    Requires: at least one column, all of one length (else ValueError), of type int64, string or large_string
    (else TypeError).
    """
    if not columns:
        raise ValueError("hash_keys needs at least one key column")
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"key columns differ in length: {[len(column) for column in columns]}")
    for column in columns:
        if column.type not in (pa.int64(), pa.string(), pa.large_string()):
            raise TypeError(f"cannot hash a key column of type {column.type}: cast it to int64 or string")
    hashes = np.full(len(columns[0]), _SEED, np.uint64)
    for column in columns:
        done = 0
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            for start in range(0, len(chunk), _BATCH_ROWS):
                batch = chunk.slice(start, _BATCH_ROWS)
                _hash_batch(batch, hashes[done : done + len(batch)])
                done += len(batch)
    return hashes


def tells_apart(columns: Sequence[pa.Array], hashes: _U64) -> bool:
    """Whether a row that has one of these hashes surely has the same key, so that keys need not be compared.

    Every step of XXH64 over a single int64 can be undone, so no two numbers share a hash. Only a NULL, whose hash is
    the seed, shares that with a number.
    """
    return len(columns) == 1 and columns[0].type == pa.int64() and not bool((hashes == np.uint64(_SEED)).any())


def _hash_batch(batch: pa.Array, hashes: _U64) -> None:
    """Hash the values of one batch into `hashes`, in place. Requires: the batch is not empty."""
    valid = np.ones(len(batch), np.bool_)
    if batch.null_count:
        valid = batch.is_valid().to_numpy(zero_copy_only=False)
    if batch.type == pa.int64():
        words = np.frombuffer(batch.buffers()[1], "<u8", len(batch), batch.offset * 8)
        hashed = _avalanche(_mix_8(hashes + _P5 + np.uint64(8), words))
        np.copyto(hashes, hashed, where=valid)
    else:
        rows = _select(valid)
        data, starts, lengths = _locate(batch)
        hashes[rows] = _hash_strings(data, starts[rows], lengths[rows], hashes[rows])


def _locate(batch: pa.Array) -> tuple[_Bytes, _I64, _I64]:
    """Give the data buffer of a string batch, and each string's start in it and length in bytes."""
    _, offset_buffer, data_buffer = batch.buffers()
    width = 4 if batch.type == pa.string() else 8
    offsets = np.frombuffer(offset_buffer, f"<i{width}", len(batch) + 1, batch.offset * width)
    offsets = offsets.astype(np.int64)
    return np.frombuffer(data_buffer, np.uint8), offsets[:-1], np.diff(offsets)


def _hash_strings(data: _Bytes, starts: _I64, lengths: _I64, seeds: _U64) -> _U64:
    """Give XXH64 of each string, with its own seed."""
    hashes = seeds + _P5
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
            rows = _select(mask)
            words = _gather(data, first[rows] + skip, width)
            hashes[rows] = _MIX[width](hashes[rows], words)
    return _avalanche(hashes)


def _hash_stripes(data: _Bytes, starts: _I64, counts: _I64, seeds: _U64) -> _U64:
    """Give the hash of the first `counts` stripes of each string. Requires: counts descend, none is 0."""
    lanes = seeds[:, None] + _LANES
    stripes = _overlapping(data, _STRIPE_BYTES)
    active = len(counts)
    for k in range(int(counts[0])):
        while counts[active - 1] <= k:
            active -= 1
        words: _U64 = stripes[starts[:active] + k * _STRIPE_BYTES].view("<u8").reshape(active, 4)
        lanes[:active] = _rotate(lanes[:active] + words * _P2, 31) * _P1
    folds = _rotate(lanes * _P2, 31) * _P1
    hashes = _rotate(lanes[:, 0], 1)
    for i, bits in ((1, 7), (2, 12), (3, 18)):
        hashes += _rotate(lanes[:, i], bits)
    for i in range(4):
        hashes = (hashes ^ folds[:, i]) * _P1 + _P4
    return hashes


def _overlapping(data: _Bytes, width: int) -> npt.NDArray[np.void]:
    """Give a view of the data whose item i is the `width` bytes at i. Requires: len(data) >= width."""
    return np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))


def _gather(data: _Bytes, positions: _I64, width: int) -> _U64:
    """Give the little-endian words of `width` bytes at the positions. Requires: width is 1, 4 or 8."""
    return _overlapping(data, width)[positions].view(f"<u{width}").astype(np.uint64, copy=False)


def _select(mask: npt.NDArray[np.bool_]) -> slice | _I64:
    """Give an index of the rows under the mask: a slice, which numpy need not copy, when it is all rows."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def _mix_8(hashes: _U64, words: _U64) -> _U64:
    """Mix an 8-byte word of the tail into each hash."""
    return _rotate(hashes ^ (_rotate(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _mix_4(hashes: _U64, words: _U64) -> _U64:
    """Mix a 4-byte word of the tail into each hash."""
    return _rotate(hashes ^ (words * _P1), 23) * _P2 + _P3


def _mix_1(hashes: _U64, words: _U64) -> _U64:
    """Mix a single byte of the tail into each hash."""
    return _rotate(hashes ^ (words * _P5), 11) * _P1


def _avalanche(hashes: _U64) -> _U64:
    """Spread every bit over each hash: the last part of XXH64."""
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


def _rotate(words: _U64, bits: int) -> _U64:
    """Rotate each word to the left."""
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


_MIX = {8: _mix_8, 4: _mix_4, 1: _mix_1}
