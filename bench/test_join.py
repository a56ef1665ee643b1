"""The interval join in its steady state against the same join on RocksDB, and against joining with the whole state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.interleave import compare
from bench.join_runs import DuckDB, Ours, Polars, Rocks, marks_share

SMALL, LARGE = 5, 50  # steps that a row is kept: 1M and 10M rows of both sides


def filled(join: Any) -> Any:
    join.fill()
    return join


@pytest.mark.parametrize("how", ["inner", "left"])
def test_join_against_the_peers(how: str, tmp_path: Path) -> None:
    ours = filled(Ours(tmp_path / "ours", LARGE, how))
    print(f"\n{how} join at {ours.rows() / 1e6:.1f}M rows of both sides, steps of 100k rows a side")
    ratios = {}
    makers: dict[str, tuple[Callable[[], Any], int]] = {
        "rocksdict": (lambda: Rocks(tmp_path / "rocks", LARGE, how), 5),
        "polars": (lambda: Polars(LARGE), 7),
        "duckdb": (lambda: DuckDB(LARGE), 7),
    }
    for name, (make, pairs) in makers.items():
        peer = filled(make())
        told = compare(ours, peer, pairs=pairs, names=("lsmstate", name), before=(ours.feed.prepare, peer.feed.prepare))
        print(told)
        ratios[name] = told.ratio
        del peer
    ours.join.on_close()
    assert ratios["rocksdict"] >= 7
    assert min(ratios["polars"], ratios["duckdb"]) >= 3


def test_join_does_not_slow_down_with_its_state(tmp_path: Path) -> None:
    small, large = filled(Ours(tmp_path / "small", SMALL, "inner")), filled(Ours(tmp_path / "large", LARGE, "inner"))
    before = (small.feed.prepare, large.feed.prepare)
    told = compare(small, large, pairs=15, names=("1M rows", "10M rows"), before=before)
    print(f"\n{told}: {1 / told.ratio:.2f} of the rows/s")
    assert 1 / told.ratio >= 0.7


def test_left_join_costs_little_more_than_inner(tmp_path: Path) -> None:
    inner, left = filled(Ours(tmp_path / "inner", LARGE, "inner")), filled(Ours(tmp_path / "left", LARGE, "left"))
    told = compare(inner, left, pairs=15, names=("inner", "left"), before=(inner.feed.prepare, left.feed.prepare))
    print(f"\n{told}")
    assert told.ratio <= 1.6


def test_marks_stay_small(tmp_path: Path) -> None:
    """Every left row meets right rows in a hundred epochs."""
    share, marks, rows = marks_share(tmp_path / "state")
    print(f"\nmarks take {marks >> 10} KiB, {share:.3f} of the {rows >> 10} KiB of the rows that they mark")
    assert share <= 0.3
