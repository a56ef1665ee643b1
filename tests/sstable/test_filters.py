"""Filters and directories: they never deny what is there, and seldom let through what is not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate import CorruptionError
from lsmstate.keys import encode_key
from lsmstate.sstable.filters import (
    KeyFilter,
    Span,
    bloom_masks,
    build_bloom,
    build_directory,
    build_key_filter,
    directory_bits,
)

U64 = npt.NDArray[np.uint64]
ALL = 2**64
FALSE_MAX = 0.03
hash_lists = st.lists(
    st.one_of(st.integers(0, ALL - 1), st.integers(0, 300), st.integers(ALL - 300, ALL - 1)), min_size=1, max_size=60
)


def sorted_hashes(told: list[int]) -> tuple[U64, Span]:
    hashes = np.sort(np.array(told, np.uint64))
    return hashes, Span(int(hashes[0]), int(hashes[-1]))


def passes(bloom: U64, span: Span, hashes: U64) -> npt.NDArray[np.bool_]:
    masks = bloom_masks(hashes)
    found: npt.NDArray[np.bool_] = (bloom[span.spread(hashes, len(bloom))] & masks) == masks
    return found


@given(hash_lists)
def test_filter_never_denies_a_row_that_is_there(told: list[int]) -> None:
    hashes, span = sorted_hashes(told)
    bloom = build_bloom(hashes, span)
    words = span.spread(hashes, len(bloom))
    assert 0 <= int(words.min()) <= int(words.max()) < len(bloom)
    assert bool((np.diff(words) >= 0).all()), "sorted probes must walk the filter forwards"
    assert passes(bloom, span, hashes).all()


@pytest.mark.parametrize("rows", [1000, 50_000])
@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 63, 64, 200])
def test_filter_lets_few_absent_rows_through_in_any_partition(partitions: int, rows: int) -> None:
    rng = np.random.default_rng(partitions)
    width = ALL // partitions
    for part in {0, partitions // 2, partitions - 1}:
        hashes = np.sort(rng.integers(part * width, (part + 1) * width - 1, rows, np.uint64, endpoint=True))
        span = Span(int(hashes[0]), int(hashes[-1]))
        absent = rng.integers(span.low, span.high, 50_000, np.uint64, endpoint=True)
        bloom = build_bloom(hashes, span)
        denied = np.count_nonzero(~passes(bloom, span, hashes))
        false_share = float(passes(bloom, span, absent).mean())
        assert denied == 0
        assert false_share < FALSE_MAX


@given(hash_lists)
def test_directory_leads_to_every_row(told: list[int]) -> None:
    hashes, span = sorted_hashes(told)
    directory = build_directory(hashes, span)
    bits = directory_bits(len(hashes))
    assert len(directory) == (1 << bits) + 1
    assert (int(directory[0]), int(directory[-1])) == (0, len(hashes))
    slots = span.spread(hashes, 1 << bits)
    rows = np.arange(len(hashes))
    assert bool(((directory[slots] <= rows) & (rows < directory[slots + 1])).all())


def test_slots_of_a_directory_hold_few_rows() -> None:
    hashes, span = sorted_hashes(np.random.default_rng(1).integers(0, ALL - 1, 100_000, np.uint64).tolist())
    assert np.diff(build_directory(hashes, span)).max() <= 16


keys = st.builds(encode_key, st.integers(0, 255), st.integers(-(2**63), 2**63 - 1))


@given(st.sets(keys, max_size=40))
def test_key_filter_never_denies_a_key_that_is_there(present: set[bytes]) -> None:
    data = build_key_filter(present)
    told = KeyFilter("f", memoryview(data))
    assert told.exists == bool(present)
    assert all(told.may_contain([key]) for key in present)
    assert not present or told.may_contain([b"absent", *present])


def test_key_filter_lets_few_absent_keys_through() -> None:
    told = KeyFilter("f", memoryview(build_key_filter(encode_key(0, n * 1000) for n in range(500))))
    wrong = sum(told.may_contain([encode_key(0, n * 1000 + 500)]) for n in range(5000))
    assert wrong < 5000 * FALSE_MAX


def test_missing_key_filter_denies_nothing() -> None:
    told = KeyFilter("f", memoryview(b""))
    assert not told.exists
    assert told.may_contain([b"anything"])


@pytest.mark.parametrize("damage", [lambda d: d[:10], lambda d: d[:-1], lambda d: d + b"x", lambda d: b"\xff" * len(d)])
def test_damaged_key_filter_is_corruption(damage: object) -> None:
    assert callable(damage)
    data = damage(build_key_filter(encode_key(0, n) for n in range(50)))
    with pytest.raises(CorruptionError, match="a key filter"):
        KeyFilter("f", memoryview(data)).may_contain([b"x"])
