"""Spark's `xxhash64` of the join key, for a whole batch of rows at once.

This package owns `hash_keys`, and knows where equal hashes mean equal keys (`tells_apart`). It holds no state and may
be called from any thread.

**What is computed.** `F.xxhash64(c1, c2, ...)` hashes the columns of a row from left to right: the first
with seed 42, and each result is the seed of the next column. A NULL leaves the hash as it was. A value is
hashed by XXH64 over its bytes: 4 or 8 little-endian bytes of a number (numbers.py), the bytes of a string or
a binary (texts.py), the unscaled value of a decimal (decimals.py). Lists and structs hash what they hold, from left to
right (nested.py). XXH64 itself is in xxh64.py.

**How it is vectorised.** Each step is a numpy expression over all rows that take part in it. An int64 is
always one word. Strings differ in length, so a step first picks its rows.

**Memory.** Rows are hashed 8192 at a time. Apart from the result, the working set is about 2 MB at most, whatever the
number of rows and their lengths; of lists, it is that of their elements at one place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lsmstate.hashing.decimals import fold_decimals
from lsmstate.hashing.nested import fold_lists, fold_structs
from lsmstate.hashing.numbers import fold_longs, fold_numbers, is_number
from lsmstate.hashing.texts import fold_fixed, fold_texts
from lsmstate.hashing.types import U64

__all__ = ["hash_keys", "is_hashable", "tells_apart"]

_SEED = 42


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray]) -> U64:
    """Give the bits of Spark's `xxhash64(*columns)` for each row, as uint64.

    Requires: at least one column, all of one length (else ValueError), of types that `is_hashable` accepts (else
    TypeError).
    """
    if not columns:
        raise ValueError("hash_keys needs at least one key column")
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"key columns differ in length: {[len(column) for column in columns]}")
    for column in columns:
        if not is_hashable(column.type):
            raise TypeError(f"cannot hash a key column of type {column.type}: cast it to one that Spark can compare")
    hashes = np.full(len(columns[0]), _SEED, np.uint64)
    for column in columns:
        done = 0
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _fold(chunk, hashes[done : done + len(chunk)])
            done += len(chunk)
    return hashes


def is_hashable(kind: pa.DataType) -> bool:
    """Whether `hash_keys` knows the type: those that Spark can compare, and unsigned numbers."""
    if pt.is_struct(kind):
        return all(is_hashable(kind.field(number).type) for number in range(kind.num_fields))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return is_hashable(kind.value_type)
    return bool(
        is_number(kind) or pt.is_uint64(kind) or pt.is_decimal(kind) or pt.is_null(kind) or _is_text(kind)
    ) or bool(pt.is_fixed_size_binary(kind))


def tells_apart(columns: Sequence[pa.Array], hashes: U64) -> bool:
    """Whether a row that has one of these hashes surely has the same key, so that keys need not be compared.

    Every step of XXH64 over a single word of 4 or 8 bytes can be undone, so no two numbers of one type share a hash.
    Only a NULL, whose hash is the seed, shares that with a number. Not so where unequal bytes are equal keys, as of
    floats, nor where a value is not its word, as of decimals and times in microseconds.
    """
    return len(columns) == 1 and _is_word(columns[0].type) and not bool((hashes == np.uint64(_SEED)).any())


def _is_word(kind: pa.DataType) -> bool:
    """Whether equal words are equal values, and these have equal bytes."""
    if pt.is_int64(kind):
        return True
    return is_number(kind) and not pt.is_floating(kind) and not (pt.is_time64(kind) and kind.unit == "us")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind) or pt.is_large_binary(kind))


def _fold(array: pa.Array, hashes: U64) -> None:
    """Hash the values of an array into `hashes`, in place."""
    kind = array.type
    if pt.is_int64(kind):
        fold_longs(array, hashes)
    elif _is_text(kind):
        fold_texts(array, hashes)
    elif is_number(kind):
        fold_numbers(array, hashes)
    elif pt.is_fixed_size_binary(kind):
        fold_fixed(array, hashes)
    elif pt.is_struct(kind):
        fold_structs(array, hashes, _fold)
    elif pt.is_nested(kind):
        fold_lists(array, hashes, _fold)
    elif not pt.is_null(kind):
        fold_decimals(array, hashes)
