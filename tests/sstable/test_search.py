"""The search in one run, in memory and in a file, against looking at every row."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate import CorruptionError, Side
from lsmstate.keys import TS_MAX, TS_MIN
from lsmstate.sstable.reader import SSTable
from lsmstate.sstable.run import Run, RunData, sorted_run
from lsmstate.sstable.search import Probes, search
from lsmstate.sstable.writer import write_sstable
from tests.support.loops import loops  # noqa: F401  # each test runs with both
from tests.support.simfs import SimFileSystem

KIND = Side("s", pa.schema([("k", pa.int64()), ("ts", pa.int64())]), ["k"], "ts", bucket=timedelta(days=10**6))
Pair = tuple[int, int]
hashes = st.one_of(
    st.sampled_from([0, 1, 2, 5, 2**32, 2**63, 2**64 - 1]),  # hot ones, and both ends
    st.integers(0, 40),
    st.integers(0, 2**64 - 1),
)
times = st.one_of(st.sampled_from([TS_MIN, -1, 0, 1, 7, TS_MAX]), st.integers(-20, 20))
stored_rows = st.lists(st.tuples(hashes, times), min_size=1, max_size=80)
asked_rows = st.lists(st.tuples(hashes, times, times), min_size=1, max_size=20)


def make_run(rows: list[Pair]) -> RunData:
    hashes, ts = np.array([h for h, _ in rows], np.uint64), np.array([t for _, t in rows], np.int64)
    ids = np.arange(1, len(rows) + 1, dtype=np.uint64)
    return sorted_run(0, KIND, hashes, ts, ids, [pa.array(range(len(rows)), pa.int64()), None])


def in_a_file(run: RunData) -> Run:
    fs = SimFileSystem()
    ref = write_sstable(fs, "/", "one.sst", {0: KIND}, [run], 1)
    table = SSTable(fs, "/one.sst", {0: KIND}, ref)
    return table.runs[0]


def found(run: Run, asked: list[tuple[int, int, int]], pairs_max: int) -> list[Pair]:
    """(probe, row) by search, rows counted as they arrived."""
    order = sorted(range(len(asked)), key=lambda n: asked[n][0])
    columns = [np.array([asked[n][i] for n in order], kind) for i, kind in enumerate((np.uint64, np.int64, np.int64))]
    pairs = []
    for who, rows in search(run, Probes(*columns), pairs_max):
        assert 0 < len(who) == len(rows) <= pairs_max
        arrived = run.column(0, rows).to_pylist()
        pairs += [(order[w], row) for w, row in zip(who.tolist(), arrived, strict=True)]
    return sorted(pairs)


def expected(rows: list[Pair], asked: list[tuple[int, int, int]]) -> list[Pair]:
    return [
        (probe, row)
        for probe, (wanted, low, high) in enumerate(asked)
        for row, (hashed, ts) in enumerate(rows)
        if hashed == wanted and low <= ts <= high
    ]


@given(stored_rows, asked_rows, st.sampled_from([1, 3, 1000]))
def test_search_finds_exactly_what_is_there(
    rows: list[Pair], asked: list[tuple[int, int, int]], pairs_max: int
) -> None:
    run = make_run(rows)
    assert found(run, asked, pairs_max) == expected(rows, asked)
    assert found(in_a_file(run), asked, pairs_max) == expected(rows, asked)


@pytest.mark.parametrize("pairs_max", [7, 1000])
@pytest.mark.parametrize("hot", [0, 17, 400])
def test_search_finds_hot_hashes_among_many(hot: int, pairs_max: int) -> None:
    rng = np.random.default_rng(hot)
    rows = [
        (int(h), int(t))
        for h, t in zip(rng.integers(0, 2**64 - 1, 600, np.uint64), rng.integers(0, 99, 600), strict=True)
    ]
    rows += [(rows[0][0], int(t)) for t in rng.integers(0, 99, hot)]
    asked = [(rows[n][0], 20, 60) for n in range(0, 600, 5)] + [(5, 0, 99), (rows[0][0], 30, 30), (rows[0][0], 60, 20)]
    run = make_run(rows)
    assert found(run, asked, pairs_max) == expected(rows, asked)
    assert found(in_a_file(run), asked, pairs_max) == expected(rows, asked)


def test_run_out_of_order_is_called_damaged_and_gives_no_row_of_another_key() -> None:
    """Under right checksums: one slot of many rows, and the hash that is asked for stands among smaller ones."""
    fs = SimFileSystem()
    run = make_run([(3, 0)] * 500 + [(7, 0)] * 500)
    run.bloom(), run.directory()  # made while it is in order
    run.hashes()[751:] = 3
    ref = write_sstable(fs, "/", "one.sst", {0: KIND}, [run], 1)
    stored = SSTable(fs, "/one.sst", {0: KIND}, ref).runs[0]
    for low in (TS_MIN, 0):  # with all times accepted, and with times compared
        with pytest.raises(CorruptionError, match=r"one\.sst"):
            found(stored, [(7, low, 0)] * 100, 5000)
