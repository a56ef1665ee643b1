"""Partitions divide all hashes among them, each one getting a range."""

from __future__ import annotations

import numpy as np
import pytest

from lsmstate.join.partition import PARTITIONS_MAX, hash_range, partition_of


def partition(value: int, partitions: int) -> int:
    return int(partition_of(np.array([value], np.uint64).view(np.int64), partitions)[0])


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 200, 4096])
def test_ranges_are_those_of_the_partitions_and_leave_no_gap(partitions: int) -> None:
    expected = 0
    for number in range(partitions):
        low, high = hash_range(number, partitions)
        assert low == expected
        assert partition(low, partitions) == partition(high, partitions) == number
        expected = high + 1
    assert expected == 1 << 64


def test_ranges_fit_the_greatest_number_of_partitions() -> None:
    for number in (0, 1, 31_337, PARTITIONS_MAX - 1):
        low, high = hash_range(number, PARTITIONS_MAX)
        assert partition(low, PARTITIONS_MAX) == partition(high, PARTITIONS_MAX) == number
        assert low == 0 or partition(low - 1, PARTITIONS_MAX) == number - 1


def test_hashes_of_any_sign_find_their_partition() -> None:
    hashes = np.random.default_rng(7).integers(-(1 << 63), (1 << 63) - 1, 10_000)
    found = partition_of(hashes, 5)
    for number in range(5):
        low, high = hash_range(number, 5)
        unsigned = hashes.view(np.uint64)
        assert ((found == number) == ((unsigned >= np.uint64(low)) & (unsigned <= np.uint64(high)))).all()
