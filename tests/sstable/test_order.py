"""The order of rows in a run, and the cut of rows into runs."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate.keys import TS_MAX, TS_MIN
from lsmstate.sstable.order import bucket_numbers, hash_order, row_order

I64 = npt.NDArray[np.int64]
few_hashes = st.sampled_from([0, 1, 2, 2**16, 2**31, 2**32, 2**32 + 1, 2**48, 2**63, 2**64 - 1])
hashes = st.one_of(few_hashes, st.integers(0, 2**64 - 1))
times = st.one_of(st.sampled_from([TS_MIN, -1, 0, 1, TS_MAX]), st.integers(TS_MIN, TS_MAX))
rows = st.lists(st.tuples(hashes, times), max_size=40)
arrivals = st.randoms(use_true_random=False)  # shuffles the ids: pieces of a memtable are joined in any order


def split(rows: list[tuple[int, int]]) -> tuple[npt.NDArray[np.uint64], I64]:
    return np.array([h for h, _ in rows], np.uint64), np.array([t for _, t in rows], np.int64)


@given(rows, arrivals)
def test_rows_are_ordered_by_hash_then_time_then_id(rows: list[tuple[int, int]], arrivals: random.Random) -> None:
    ids = list(range(1, len(rows) + 1))
    for _ in range(2):  # as they arrived, and shuffled
        order = row_order(*split(rows), np.array(ids, np.uint64))
        assert order.tolist() == sorted(range(len(rows)), key=lambda n: (*rows[n], ids[n]))
        arrivals.shuffle(ids)


@given(rows)
def test_probes_are_ordered_by_hash(rows: list[tuple[int, int]]) -> None:
    hashes = split(rows)[0]
    order = hash_order(hashes)
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert hashes[order].tolist() == sorted(hashes.tolist())


@pytest.mark.parametrize("spread", [1, 5, 1000, 2**20, 2**40, 2**63])
def test_many_rows_are_ordered_like_a_comparing_sort(spread: int) -> None:
    rng = np.random.default_rng(spread)
    count = 20_000
    hashes = rng.integers(0, spread, count, dtype=np.uint64) * np.uint64(max(1, 2**63 // spread))
    ts = rng.integers(-20, 20, count)
    for ids in (np.arange(count, dtype=np.uint64), rng.permutation(count).astype(np.uint64)):
        assert np.array_equal(row_order(hashes, ts, ids), np.lexsort((ids, ts, hashes)))
    assert np.array_equal(hashes[hash_order(hashes)], np.sort(hashes))


@pytest.mark.parametrize("width", [1, 10, 3_600_000_000, 2**62])
def test_bucket_holds_the_times_from_its_start_to_its_end(width: int) -> None:
    ts = np.array([TS_MIN, TS_MIN + 1, -width - 1, -width, -1, 0, width - 1, width, TS_MAX - 1, TS_MAX])
    assert bucket_numbers(ts, width).tolist() == [int(t) // width for t in ts]
