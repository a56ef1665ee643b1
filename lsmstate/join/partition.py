"""Partitions: the ranges of key hashes that a join is divided into. Every row lies in the partition of its hash."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PARTITIONS_MAX = 100_000
_KEPT_BITS = 31  # of a hash: the highest ones, so that the product with the partitions stays within int64
_DROPPED_BITS = 64 - _KEPT_BITS


def partition_of(hashes: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each hash: ranges of the hash as an unsigned number. The plan computes the same in Spark."""
    return ((hashes.view(np.uint64) >> np.uint64(_DROPPED_BITS)).astype(np.int64) * partitions) >> _KEPT_BITS


def hash_range(partition: int, partitions: int) -> tuple[int, int]:
    """The first and the last hash of a partition, as unsigned numbers."""
    low, end = (-((-number << _KEPT_BITS) // partitions) for number in (partition, partition + 1))
    return low << _DROPPED_BITS, (end << _DROPPED_BITS) - 1
