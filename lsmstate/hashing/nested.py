"""Lists and structs: their elements and fields are hashed from left to right, each with the hash before as its seed.

This module owns that order. It holds no state and may be called from any thread. What is NULL, at any depth, leaves
the hash as it was; so do an empty list and a struct of NULLs, which share the hash of NULL: keys are compared later.

All first elements are hashed together, then all second ones: the cost follows the elements that are there, plus a few
calls for each element of the longest list.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lsmstate.hashing.types import I64, U64, batches, valid_rows

Fold = Callable[[pa.Array, U64], None]


def fold_structs(array: pa.Array, hashes: U64, fold: Fold) -> None:
    """Hash structs into `hashes`, in place; `fold` does it for a field."""
    for batch, into in batches(array, hashes):
        hashed = into.copy()
        for number in range(batch.type.num_fields):
            fold(batch.field(number), hashed)
        np.copyto(into, hashed, where=valid_rows(batch))


def fold_lists(array: pa.Array, hashes: U64, fold: Fold) -> None:
    """Hash lists into `hashes`, in place; `fold` does it for elements."""
    for batch, into in batches(array, hashes):
        starts, lengths = spans(batch)
        rows = np.argsort(-lengths, kind="stable")
        counts = lengths[rows]
        elements, active = batch.values, len(rows)
        for k in range(int(counts[0])):
            active = int(np.searchsorted(-counts[:active], -k, "left"))  # those that are longer than k
            some = rows[:active]
            hashed = into[some]
            fold(elements.take(pa.array(starts[some] + k)), hashed)
            into[some] = hashed


def spans(lists: pa.Array) -> tuple[I64, I64]:
    """Where the elements of each list begin among its `values`, and how many there are: none of what is NULL."""
    kind = lists.type
    if pt.is_fixed_size_list(kind):
        starts = (np.arange(len(lists)) + lists.offset) * kind.list_size
        lengths = np.full(len(lists), kind.list_size)
    else:
        width = 8 if pt.is_large_list(kind) else 4
        offsets = np.frombuffer(lists.buffers()[1], f"<i{width}", len(lists) + 1, lists.offset * width)
        offsets = offsets.astype(np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
    return starts, np.where(valid_rows(lists), lengths, 0)
