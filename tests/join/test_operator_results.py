"""What join operators give, and when: ties, lateness, idle sides, far rows, the ends of time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lsmstate.checkpoint import OperatorContext
from lsmstate.join import AsOfJoin, ExpiringJoin, InstantJoin
from tests.support.join_cases import Row, random_case, us
from tests.support.join_operator import LEFT_SIDE, RIGHT_SIDE, Started, checkpoint, feed, interval, taken


@pytest.mark.parametrize("seed", range(5))
def test_same_input_cut_in_ten_ways_gives_the_same_result(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    lefts, rights = ([row for step in case.steps for row in step.rows if step.side == side] for side in (0, 1))
    found = []
    for ways in range(10):
        join = case.make()
        join.on_start(OperatorContext(tmp_path / str(ways)))
        results: list[tuple[Any, ...]] = []
        size = (1, 2, 3, 5, 7, 11, 20, 40, 80, 1000)[ways]
        for at in range(0, max(len(lefts), len(rights)), size):
            for side, rows in ((0, lefts), (1, rights)) if ways % 2 else ((1, rights), (0, lefts)):
                results += feed(join, side, *rows[at : at + size])
        results += taken(join.process_watermark(1 << 60))
        join.on_close()
        found.append(Counter(results))
    assert all(each == found[0] for each in found)


def test_ttl_of_zero_or_none_means_a_day(tmp_path: Path) -> None:
    for ttl in (None, timedelta(0)):
        assert ExpiringJoin(LEFT_SIDE, RIGHT_SIDE, ttl=ttl).shape.kind.upper_us == 86_400_000_000


def test_ttl_holds_while_it_runs_not_only_after_a_restart(started: Started) -> None:
    join = started(ExpiringJoin(LEFT_SIDE, RIGHT_SIDE, ttl=us(10)))
    assert feed(join, 0, (1, 100, 1, "a")) == []
    assert feed(join, 1, (1, 111, 2, "b")) == []  # too far away, though it is still there
    assert len(feed(join, 1, (1, 110, 3, "c"))) == 1
    assert taken(join.process_watermark(200)) == []
    assert join.store.stats().sides[0].rows == 1  # gone with the next epoch, invisible at once
    assert list(join.store.scan(0)) == []


def test_instant_join_with_one_side_empty_still_gives_the_other(started: Started) -> None:
    join = started(InstantJoin(LEFT_SIDE, RIGHT_SIDE, how="full"))
    assert feed(join, 1, (1, 5, 1, "x")) == []
    assert taken(join.process_watermark(4)) == []
    assert taken(join.process_watermark(5)) == [(1, None, None, None, 1, 5, "x")]
    assert taken(join.process_watermark(6)) == []


def test_as_of_ties_break_by_content_not_by_arrival(tmp_path: Path) -> None:
    rights: list[Row] = [(1, 5, 7, "a"), (1, 5, 9, None), (1, 5, 9, "b"), (1, 4, 99, "z")]
    for number, order in enumerate((rights, rights[::-1], rights[2:] + rights[:2])):
        join = AsOfJoin(LEFT_SIDE, RIGHT_SIDE, tolerance=us(10))
        join.on_start(OperatorContext(tmp_path / str(number)))
        for row in order:
            feed(join, 1, row)
        feed(join, 0, (1, 6, 1, "l"))
        assert taken(join.process_watermark(6)) == [(1, 6, 1, "l", 9, 5, None)]
        join.on_close()


def test_rows_at_the_ends_of_time_come_out_once(started: Started) -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    join = started(interval(lower=us(-10), upper=us(10)))
    feed(join, 0, (1, least, 1, "first"), (1, most, 2, "last"))
    assert taken(join.process_watermark(least + 9)) == []
    assert [row[3] for row in taken(join.process_watermark(least + 10))] == ["first"]
    assert taken(join.process_watermark(least + 11)) == []
    assert [row[3] for row in taken(join.process_watermark(most))] == ["last"]


def test_probe_asks_filters_and_does_not_read_the_whole_other_side(started: Started) -> None:
    join = started()
    for number in range(4):
        feed(join, 0, *((key, number, key, "a") for key in range(number * 1000, (number + 1) * 1000)))
        checkpoint(join, number + 1)
    assert len(feed(join, 1, (1500, 3, 1, "r"))) == 1
    probes = join.store.stats().probes
    assert (probes.found, probes.asked) == (1, 4)  # of four runs, three said no
    assert 1 <= probes.passed < 4


def test_one_late_row_does_not_take_its_batch_with_it(started: Started) -> None:
    join = started()
    taken(join.process_watermark(100))
    feed(join, 0, (1, 100, 1, "late"), (1, 101, 2, "in time"))
    assert join.counts.late == [1, 0]
    assert taken(join.process_watermark(1000)) == [(1, 101, 2, "in time", None, None, None)]


def test_late_and_far_rows_are_kept_with_reason_watermark_and_epoch(started: Started) -> None:
    join = started(interval(late="keep", max_jump=us(1000)))
    checkpoint(join, 1)
    taken(join.process_watermark(100))
    feed(join, 0, (1, 50, 1, "old"), (1, 5000, 2, "far"), (1, 200, 3, "good"))
    assert (join.counts.late, join.counts.ahead) == ([1, 0], [1, 0])
    kept = [row for batch in join.store.scan(2) for row in batch.to_pylist()]
    told = {(row["text"], row["__reason"], row["__watermark"], row["__epoch"]) for row in kept}
    assert told == {("old", "late", 100, 2), ("far", "ahead", 100, 2)}
    checkpoint(join, 2)
    join.on_close()
    assert started(interval(late="keep", max_jump=us(1000))).counts.late == [1, 0]


def test_watermark_is_the_lower_one_of_both_and_never_goes_back(started: Started) -> None:
    join = started()
    taken(join.process_watermark(100, side=0))
    assert join.store.watermark is None
    taken(join.process_watermark(50, side=1))
    assert join.store.watermark == 50
    taken(join.process_watermark(20, side=1))
    assert join.store.watermark == 50


def test_idle_side_holds_nothing_up_until_it_speaks(started: Started) -> None:
    join = started()
    taken(join.process_watermark(100, side=0))
    taken(join.process_idle(1))
    assert join.store.watermark == 100
    taken(join.process_watermark(120, side=1))
    taken(join.process_watermark(200, side=0))
    assert join.store.watermark == 120


def test_heaviest_keys_are_told(started: Started) -> None:
    join = started()
    for number in range(5):
        feed(join, 0, *((key, number, 1, "a") for key in range(50) for _ in range(10 if key == 7 else 1)))
    assert join.stats().heaviest[0][0] == ((7,), 50)
    assert join.stats().heaviest[0][1][1] == 5
    assert join.stats().heaviest[1] == []
