"""The compiled loops give what numpy gives, and refuse arrays that do not fit instead of reading beyond them."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate.engine import probe
from lsmstate.hashing import hash_keys, numbers, texts
from lsmstate.native import kernel as loaded
from lsmstate.sstable import filters, gather, order, search
from lsmstate.sstable.filters import Span, bloom_masks, build_bloom, build_directory
from tests.support.loops import USERS, only_numpy

U64 = npt.NDArray[np.uint64]
hashes = st.lists(
    st.one_of(
        st.sampled_from([0, 1, 2, 2**16, 2**31, 2**32, 2**32 + 1, 2**48, 2**63, 2**64 - 1]),
        st.integers(0, 50),
        st.integers(0, 2**64 - 1),
    ),
    min_size=1,
    max_size=200,
)


@pytest.fixture(scope="module")
def kernel() -> ModuleType:
    assert loaded is not None, "lsmstate was installed without a compiler"
    return loaded


def test_all_modules_with_two_ways_are_tested_both_ways() -> None:
    assert all(module.kernel is loaded for module in USERS)
    assert {filters, gather, order, search, probe, numbers, texts} == set(USERS)


@given(hashes)
def test_filters_directories_and_orders_are_those_of_numpy(values: list[int]) -> None:
    unsorted = np.array(values, np.uint64)
    rows = np.sort(unsorted)
    span = Span(int(rows[0]), int(rows[-1]))
    compiled = build_bloom(rows, span), build_directory(rows, span), order.hash_order(unsorted)
    with only_numpy():
        plain = build_bloom(rows, span), build_directory(rows, span), order.hash_order(unsorted)
    for one, other in zip(compiled, plain, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=50),
    st.lists(st.none() | st.text(max_size=80), max_size=50),
    st.integers(0, 50),
)
def test_hashes_are_those_of_numpy(numbers: list[int | None], words: list[str | None], start: int) -> None:
    columns = [pa.array(numbers, pa.int64())]
    columns += [pa.array(words, kind) for kind in (pa.string(), pa.large_string())]
    columns.append(pa.array([None if word is None else word.encode() for word in words], pa.binary()))
    for column in (part for whole in columns for part in (whole, whole.slice(start))):
        compiled = hash_keys([column, column])
        with only_numpy():
            assert np.array_equal(compiled, hash_keys([column, column]))


def test_offsets_that_lead_out_of_the_bytes_are_refused(kernel: ModuleType) -> None:
    hashes = np.zeros(1, np.uint64)
    for offsets in ([0, 4], [-1, 2], [2, 1], [2**31 - 1, 2**31 - 1]):
        with pytest.raises(ValueError, match="do not fit"):
            kernel.hash_bytes(np.array(offsets, np.int32), 4, b"abc", None, 0, hashes)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.hash_bytes(np.zeros(3, np.int32), 4, b"", None, 0, hashes)
    with pytest.raises(ValueError, match="do not fit"):  # fewer validity bits than rows
        kernel.hash_longs(np.zeros(1, np.uint64), b"", 0, hashes)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.hash_longs(np.zeros(1, np.uint64), b"x", 2**63 - 1, hashes)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.hash_longs(np.zeros(2, np.uint64), None, 0, hashes)


def told(kernel: ModuleType, directory: list[int], asked: list[int], rows: int = 3) -> int:
    """The count that match_rows gives for a run whose rows all have the hash 5."""
    run = np.full(rows, 5, np.uint64)
    probes, low, high = np.array([5], np.uint64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    who, out = np.empty(8, np.int64), np.empty(8, np.int64)
    slots = np.array(directory, np.uint32)
    scale = Span(5, 5).scale(1)
    ask = np.array(asked, np.int64)
    count: int = kernel.match_rows(slots, run, None, probes, low, high, ask, *scale, 0, 0, -1, who, out)[0]
    return count


def test_directory_that_leads_out_of_the_run_is_told(kernel: ModuleType) -> None:
    assert told(kernel, [0, 3], [0]) == 3
    assert told(kernel, [0, 4], [0]) == -1
    assert told(kernel, [2**32 - 1, 2**32 - 1], [0]) == -1
    assert told(kernel, [3, 0], [0]) == -1
    assert told(kernel, [0], [0]) == -1
    assert told(kernel, [], [0]) == -1


def test_probe_that_does_not_exist_is_told(kernel: ModuleType) -> None:
    assert told(kernel, [0, 3], [1]) == -1
    assert told(kernel, [0, 3], [-1]) == -1


def test_pairs_come_in_pieces_that_fit(kernel: ModuleType) -> None:
    """Ten rows of one hash by three probes, four pairs at a time."""
    run, times = np.full(10, 7, np.uint64), np.arange(10)
    directory, scale = np.array([0, 10], np.uint32), Span(7, 7).scale(1)
    probes, low, high = np.full(3, 7, np.uint64), np.array([0, 2, 9]), np.array([9, 4, 20])
    who, rows = np.empty(4, np.int64), np.empty(4, np.int64)
    position, row, pairs = 0, -1, []
    while position < 3:
        count, position, row = kernel.match_rows(
            directory, run, times, probes, low, high, np.arange(3), *scale, 0, position, row, who, rows
        )
        assert 0 <= count <= 4
        pairs += list(zip(who[:count].tolist(), rows[:count].tolist(), strict=True))
    assert pairs == [(0, n) for n in range(10)] + [(1, 2), (1, 3), (1, 4), (2, 9)]


def test_rows_out_of_order_are_told_instead_of_walked(kernel: ModuleType) -> None:
    """A binary search leads to a row with the hash, and smaller ones lie behind it."""
    run = np.full(1000, 3, np.uint64)
    run[500] = 7
    probes, bound = np.array([7], np.uint64), np.zeros(1, np.int64)
    out = np.empty(8, np.int64), np.empty(8, np.int64)
    slots, scale = np.array([0, 1000], np.uint32), Span(7, 7).scale(1)
    for times in (None, np.zeros(1000, np.int64)):
        args = slots, run, times, probes, bound, bound, np.zeros(1, np.int64), *scale, 0, 0
        assert kernel.match_rows(*args, -1, *out)[0] == -1
        assert kernel.match_rows(*args, 500, *out)[0] == -1  # going on where rows are not in order


@given(hashes, hashes, st.integers(1, 1 << 40), st.integers(0, 40))
def test_hashes_that_a_filter_lets_pass_are_those_of_numpy(
    stored: list[int], asked: list[int], factor: int, shift: int
) -> None:
    """Also where the filter is not that of the span, so that distances and places are of any size."""
    assert loaded is not None
    rows, probes = np.unique(np.array(stored, np.uint64)), np.unique(np.array(asked, np.uint64))
    words = build_bloom(rows, Span(int(rows[0]), int(rows[-1])))
    out = np.empty(len(probes), np.int64)
    places = [((hashed - int(probes[0]) >> shift) * factor & 2**64 - 1) >> 32 for hashed in probes.tolist()]
    if places[-1] >= len(words) or factor > len(words) << 32:
        with pytest.raises(ValueError, match="do not fit"):
            loaded.filter_hashes(words, probes, int(probes[0]), shift, factor, out)
        return
    found = out[: loaded.filter_hashes(words, probes, int(probes[0]), shift, factor, out)]
    masks = bloom_masks(probes).tolist()
    wanted = [n for n, at in enumerate(places) if at < len(words) and int(words[at]) & masks[n] == masks[n]]
    assert found.tolist() == wanted


def test_arrays_that_do_not_fit_are_refused(kernel: ModuleType) -> None:
    some, span = np.array([1, 9], np.uint64), (1, 0, 1 << 30)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.filter_hashes(np.zeros(4, np.uint64), some, *span, np.empty(1, np.int64))
    with pytest.raises(ValueError, match="do not fit"):  # a factor that leads beyond the filter
        kernel.filter_hashes(np.zeros(4, np.uint64), some, 1, 0, 1 << 33, np.empty(2, np.int64))
    with pytest.raises(ValueError, match="do not fit"):  # a hash below the span
        kernel.build_bloom(some, 2, 0, 1, np.zeros(4, np.uint64))
    with pytest.raises(ValueError, match="do not fit"):
        kernel.build_directory(some, *span, np.zeros(0, np.uint32))
    with pytest.raises(ValueError, match="do not fit"):
        kernel.sort_hashes(some, 0, 0, np.empty(2, np.int64), np.empty(1, np.uint32))
    with pytest.raises(ValueError, match="do not fit"):
        kernel.sort_hashes(some, 0, 64, np.empty(2, np.int64), np.empty(2, np.uint32))
    with pytest.raises((BufferError, ValueError, TypeError)):
        kernel.sort_hashes(np.arange(8, dtype=np.uint64)[::2], 0, 0, np.empty(4, np.int64), np.empty(4, np.uint32))
