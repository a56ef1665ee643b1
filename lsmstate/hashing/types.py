"""What the hash functions share: names of numpy's types, and arrays cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
BATCH_ROWS = 8192


def batches(array: pa.Array, hashes: U64) -> Iterator[tuple[pa.Array, U64]]:
    """Some rows at a time, with their hashes: the working set stays small, and mostly in the L2 cache."""
    for start in range(0, len(array), BATCH_ROWS):
        yield array.slice(start, BATCH_ROWS), hashes[start : start + BATCH_ROWS]


def validity(array: pa.Array) -> pa.Buffer | None:
    """The bits that say which values are not NULL, from the array's offset on; None if all are."""
    return array.buffers()[0] if array.null_count else None


def valid_rows(batch: pa.Array) -> npt.NDArray[np.bool_]:
    """Which rows are not NULL."""
    if not batch.null_count:
        return np.ones(len(batch), np.bool_)
    valid: npt.NDArray[np.bool_] = batch.is_valid().to_numpy(zero_copy_only=False)
    return valid
