"""The merge of sorted runs against plain sorting; and cuts that keep pieces small and in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction import cut_points, dead_rows, merge_order, unit_width

Rows = list[tuple[int, int, int]]
few = st.tuples(st.integers(0, 5), st.integers(-3, 3), st.integers(0, 2**64 - 1))
wide = st.tuples(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1))
runs = st.lists(st.lists(st.one_of(few, wide), min_size=1, max_size=30).map(sorted), min_size=1, max_size=6)


def columns(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    hashes, ts, ids = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(hashes, np.uint64), np.array(ts, np.int64), np.array(ids, np.uint64)


@given(runs)
def test_merged_rows_stand_in_the_order_of_hash_time_and_id(runs: list[Rows]) -> None:
    together = [row for run in runs for row in run]
    order = merge_order(*columns(together))
    assert [together[n] for n in order] == sorted(together)


@given(runs, st.integers(1, 40))
def test_pieces_follow_each_other_and_hold_every_row_once(runs: list[Rows], rows_max: int) -> None:
    split = [columns(run) for run in runs]
    ends = cut_points([run[0] for run in split], [run[1] for run in split], rows_max)
    assert len({len(mine) for mine in ends}) == 1
    starts = [0] * len(runs)
    last: tuple[int, int] | None = None
    for piece in zip(*ends, strict=True):
        rows = [row[:2] for run, start, end in zip(runs, starts, piece, strict=True) for row in run[start:end]]
        assert all(end >= start for start, end in zip(starts, piece, strict=True))
        if rows:
            assert last is None or min(rows) >= last
            last = max(rows)
        starts = list(piece)
    assert starts == [len(run) for run in runs]


def test_hot_key_is_cut_between_its_times() -> None:
    hashes, ts = np.full(10_000, 7, np.uint64), np.arange(10_000)
    (ends,) = cut_points([hashes], [ts], 1000)
    assert np.diff([0, *ends]).max() <= 1000


def test_pieces_are_small_though_runs_hold_different_ranges_of_hashes() -> None:
    rng = np.random.default_rng(1)
    hashes = [np.sort(rng.integers(low, low + 2**62, 20_000, np.uint64)) for low in (0, 2**61, 2**63)]
    ends = cut_points(hashes, [np.zeros(20_000, np.int64)] * 3, 1000)
    sizes = np.diff(np.array([[0, *mine] for mine in ends]), axis=1).sum(axis=0)
    assert sizes.max() <= 1500
    assert sizes.sum() == 60_000


@pytest.mark.parametrize(
    ("retention", "bucket", "width"),
    [(1600, 100, 100), (1601, 100, 200), (0, 100, 100), (3600, 1, 225), (10, 1000, 1000)],
)
def test_unit_is_a_sixteenth_of_the_retention_in_whole_buckets(retention: int, bucket: int, width: int) -> None:
    assert unit_width(retention, bucket) == width


def test_dead_is_what_is_retired_or_older_than_a_tombstone() -> None:
    ts, ids = np.array([1, 2, 3, 4, 5]), np.array([10, 11, 12, 13, 14], np.uint64)
    assert dead_rows(ts, ids, 2, [(3, 5, 13)]).tolist() == [True, False, True, False, False]
