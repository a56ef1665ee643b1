"""The life of a join operator: starts, results, checkpoints, lateness, idle sides, bad input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from iopool import MemoryController, WorkerPool
from lsmstate import EpochError, FencedError, LsmStateError, SchemaError, Side, StoreClosedError
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.join import AsOfJoin, ExpiringJoin, InstantJoin, IntervalJoin
from lsmstate.join.operator import JoinOperator
from tests.support.join_cases import LEFT, RIGHT, Row, batch_of, random_case, us

LEFT_SIDE, RIGHT_SIDE = Side("left", LEFT, ["k"], "ts"), Side("right", RIGHT, ["k"], "ts")
Started = Callable[..., JoinOperator]


def interval(**options: Any) -> IntervalJoin:
    told = {"lower": us(-5), "upper": us(5), "how": "left", **options}
    return IntervalJoin(LEFT_SIDE, RIGHT_SIDE, **told)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made: list[JoinOperator] = []

    def start(join: JoinOperator | None = None, **context: Any) -> JoinOperator:
        operator = join or interval()
        operator.on_start(OperatorContext(tmp_path / "state", **context))
        made.append(operator)
        return operator

    yield start
    for operator in made:
        operator.on_close()


def feed(join: JoinOperator, side: int, *rows: Row) -> list[tuple[Any, ...]]:
    return taken(join.process_batch(side, batch_of(side, rows)))


def taken(batches: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def checkpoint(join: JoinOperator, epoch: int) -> None:
    assert join.handle_checkpoint(CheckpointBarrier(epoch))
    join.commit(epoch)


# ---- results


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


def test_one_late_row_does_not_take_its_batch_with_it(started: Started) -> None:
    join = started()
    taken(join.process_watermark(100))
    feed(join, 0, (1, 100, 1, "late"), (1, 101, 2, "in time"))
    assert join.counts.late == [1, 0]
    assert taken(join.process_watermark(1000)) == [(1, 101, 2, "in time", None, None, None)]


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


def test_each_row_alone_comes_out_once_across_restart_compaction_and_rollback(started: Started) -> None:
    join = started()
    feed(join, 0, (1, 10, 1, "a"), (2, 10, 2, "b"))
    checkpoint(join, 1)
    assert len(feed(join, 1, (1, 12, 3, "r"))) == 1  # in epoch 2, which is taken back
    checkpoint(join, 2)
    join.on_close()
    join = started(safe_epoch=1)
    join.store.compact(major=True)
    checkpoint(join, 2)
    assert len(feed(join, 1, (1, 12, 3, "r"))) == 1
    checkpoint(join, 3)
    join.on_close()
    join = started()
    join.store.compact(major=True)
    assert taken(join.process_watermark(14)) == []
    assert taken(join.process_watermark(15)) == [(2, 10, 2, "b", None, None, None)]
    checkpoint(join, 4)
    join.on_close()
    join = started()
    assert taken(join.process_watermark(1000)) == []


def test_probe_asks_filters_and_does_not_read_the_whole_other_side(started: Started) -> None:
    join = started()
    for number in range(4):
        feed(join, 0, *((key, number, key, "a") for key in range(number * 1000, (number + 1) * 1000)))
        checkpoint(join, number + 1)
    assert len(feed(join, 1, (1500, 3, 1, "r"))) == 1
    probes = join.store.stats().probes
    assert (probes.found, probes.asked) == (1, 4)  # of four runs, three said no
    assert 1 <= probes.passed < 4


def test_restored_rows_are_not_there_twice(started: Started) -> None:
    join = started()
    feed(join, 0, (1, 10, 1, "a"))
    checkpoint(join, 1)
    for _ in range(3):
        join.on_close()
        join = started()
    assert join.store.stats().sides[0].rows == 1
    assert len(feed(join, 1, (1, 10, 2, "b"))) == 1


def test_rows_after_the_barrier_belong_to_the_next_epoch(started: Started) -> None:
    join = started()
    feed(join, 0, (1, 10, 1, "a"))
    join.handle_checkpoint(CheckpointBarrier(1))
    feed(join, 0, (1, 11, 2, "b"))
    join.commit(1)
    join.on_close()
    assert started().store.stats().sides[0].rows == 1


# ---- lateness, idle sides, far rows


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


def test_operators_of_a_process_share_pool_and_memory(tmp_path: Path) -> None:
    pool, memory = WorkerPool(), MemoryController(1 << 20, 2 << 20)
    joins = [interval(), interval()]
    for number, join in enumerate(joins):
        join.on_start(OperatorContext(tmp_path / str(number), memory=memory, pool=pool))
        feed(join, 0, (1, 1, 1, "a"))
        checkpoint(join, 1)
        join.on_close()
    pool.close(10)


# ---- bad input


def test_results_have_to_be_taken_before_the_next_call(started: Started) -> None:
    join = started()
    feed(join, 0, (1, 10, 1, "a"))
    results = join.process_batch(1, batch_of(1, ((1, 10, 2, "b"),)))
    with pytest.raises(LsmStateError, match="not taken to their end"):
        join.process_watermark(5)
    with pytest.raises(LsmStateError, match="not taken to their end"):
        join.handle_checkpoint(CheckpointBarrier(1))
    assert len(taken(results)) == 1
    checkpoint(join, 1)


def test_calls_without_results_need_not_be_iterated_over(started: Started) -> None:
    join = started()
    join.process_batch(0, batch_of(0, ((1, 10, 1, "a"),)))
    join.process_watermark(5)
    assert join.store.watermark == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: interval(how="outer"), "how must be one of inner, left"),
        (lambda: interval(lower=us(6)), "no rows can meet; swap them"),
        (lambda: interval(lower=5), "lower must be a timedelta, not int"),
        (lambda: interval(late="drop"), "late must be 'count' or 'keep'"),
        (lambda: interval(max_jump=us(0)), "max_jump must be a timedelta above zero"),
        (lambda: interval(condition="a > b"), "condition must be a pyarrow.compute.Expression"),
        (lambda: interval(suffixes=("", "")), "the result would have text, ts twice"),
        (lambda: ExpiringJoin(LEFT_SIDE, RIGHT_SIDE, ttl=us(-1)), "ttl must not be negative"),
        (lambda: AsOfJoin(LEFT_SIDE, RIGHT_SIDE, tolerance=us(1), how="full"), "how must be one of inner, left, not"),
        (lambda: AsOfJoin(LEFT_SIDE, RIGHT_SIDE, tolerance=us(-1)), "tolerance must not be negative"),
        (
            lambda: InstantJoin(LEFT_SIDE, Side("right", RIGHT, ["text"], "ts")),
            r"the keys 'k' \(int64\) and 'text' \(string\) cannot be compared",
        ),
        (lambda: Side("right", RIGHT, ["k"], "when"), "no column 'when'; there are k, b, ts, text"),
    ],
)
def test_nonsense_is_refused_when_it_is_made(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (pc.field("nothing") > 1, "the condition of the join failed with .*The columns that it can use are: k, ts"),
        (lambda pairs: 1 / 0, "failed with ZeroDivisionError"),
        (pc.field("a"), "gives int64; it must give an array of booleans"),
        (lambda pairs: pa.array([True] * 9), "gives 9 booleans for 1 pairs"),
    ],
)
def test_condition_that_fails_is_told_and_loses_nothing(condition: Any, message: str, started: Started) -> None:
    join = started(interval(condition=condition))
    feed(join, 0, (1, 10, 1, "a"))
    with pytest.raises(LsmStateError, match=message):
        feed(join, 1, (1, 10, 2, "b"))
    assert join.store.stats().sides[0].rows == 1


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.RecordBatch.from_pydict({"k": [1]}), "side 'left' has the columns k, ts, a, text; the batch has k"),
        (pa.table({"k": ["x"], "ts": [1], "a": [1], "text": ["x"]}), "column 'k' is string instead of int64; cast it"),
        ([1], "a pyarrow RecordBatch or Table is needed, not list"),
    ],
)
def test_batch_that_does_not_fit_is_refused(batch: Any, message: str, started: Started) -> None:
    join = started()
    with pytest.raises(SchemaError, match=message):
        join.process_batch(0, batch)
    assert feed(join, 0, (1, 10, 1, "a")) == []


def test_state_of_another_join_is_refused(started: Started) -> None:
    join = started()
    feed(join, 0, (1, 10, 1, "a"))
    checkpoint(join, 1)
    join.on_close()
    for other in (
        interval(how="left_semi"),
        interval(how="full"),
        interval(upper=us(9)),
        InstantJoin(LEFT_SIDE, RIGHT_SIDE),
    ):
        with pytest.raises((SchemaError, LsmStateError)):
            started(other)
    started().on_close()


def test_two_operators_in_one_directory_end_in_one(started: Started) -> None:
    one, other = started(), started()
    feed(one, 0, (1, 10, 1, "a"))
    checkpoint(one, 1)
    feed(other, 0, (1, 10, 2, "b"))
    with pytest.raises(FencedError):
        checkpoint(other, 1)


def test_epoch_that_is_not_there_is_refused(started: Started) -> None:
    checkpoint(started(), 1)
    with pytest.raises(EpochError):
        started(safe_epoch=7)


def test_operator_that_is_not_started_says_so() -> None:
    join = interval()
    with pytest.raises(StoreClosedError, match="call on_start"):
        join.process_watermark(1)
    join.on_close()


def test_barrier_with_nonsense_is_refused() -> None:
    for told in ({"epoch": 0}, {"epoch": True}, {"epoch": 2, "min_epoch": 3}):
        with pytest.raises(ValueError, match="CheckpointBarrier"):
            CheckpointBarrier(**told)


# ---- what was found by reading


def test_epoch_that_was_durable_and_not_committed_is_gone_on_to(started: Started) -> None:
    join = started()
    feed(join, 0, (1, 10, 1, "a"))
    taken(join.process_watermark(3))
    join.handle_checkpoint(CheckpointBarrier(1))
    join.on_close()  # before the commit came
    join = started(safe_epoch=1)
    assert (join.counts.rows_in, join.store.watermark) == ([1, 0], 3)
    assert len(feed(join, 1, (1, 10, 2, "b"))) == 1
    join.on_close()
    with pytest.raises(EpochError, match="to start anew give the operator another directory"):
        started(safe_epoch=0)


def test_operator_that_is_started_again_has_forgotten_all(started: Started, tmp_path: Path) -> None:
    join = started()
    feed(join, 0, (1, 10, 1, "a"))
    taken(join.process_watermark(5))
    join.process_batch(1, batch_of(1, ((1, 10, 2, "b"),)))  # never taken
    join.on_close()
    join.on_start(OperatorContext(tmp_path / "other"))
    assert (join.counts.rows_in, join.store.watermark) == ([0, 0], None)
    taken(join.process_watermark(2))
    assert join.store.watermark == 2


def test_marks_survive_a_fold_that_fails_and_is_tried_again(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsmstate.join.marks._FOLD_AT", 2)
    join = started()
    for epoch in range(1, 6):
        feed(join, 0, (epoch, 10, epoch, "a"))
        assert len(feed(join, 1, (epoch, 10, epoch, "b"))) == 1
        append = join.store.append
        if epoch == 3:

            def failing(side: int, batch: Any) -> int:
                raise OSError(28, "no space left")

            monkeypatch.setattr(join.store, "append", failing)
            with pytest.raises(OSError, match="no space"):
                join.handle_checkpoint(CheckpointBarrier(epoch))
            monkeypatch.setattr(join.store, "append", append)
        checkpoint(join, epoch)
    join.on_close()
    join = started()
    assert taken(join.process_watermark(1000)) == []


def test_watermarks_and_sides_are_checked_before_anything_changes(started: Started) -> None:
    join = started()
    with pytest.raises(ValueError, match="a watermark is a time"):
        join.process_watermark(1 << 63)
    for side in (5, -1, True):
        with pytest.raises(ValueError, match="side must be 0"):
            join.process_watermark(5, side=side)
        with pytest.raises(ValueError, match="side must be 0"):
            join.process_idle(side)
    taken(join.process_watermark(5))
    assert join.store.watermark == 5


def test_rows_at_the_ends_of_time_come_out_once(started: Started) -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    join = started(interval(lower=us(-10), upper=us(10)))
    feed(join, 0, (1, least, 1, "first"), (1, most, 2, "last"))
    assert taken(join.process_watermark(least + 9)) == []
    assert [row[3] for row in taken(join.process_watermark(least + 10))] == ["first"]
    assert taken(join.process_watermark(least + 11)) == []
    assert [row[3] for row in taken(join.process_watermark(most))] == ["last"]


def test_null_in_a_column_without_nulls_is_refused_before_a_pair_comes_out(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    join = InstantJoin(LEFT_SIDE, Side("right", schema, ["k"], "ts"))
    join.on_start(OperatorContext(tmp_path))
    with pytest.raises(SchemaError, match="column 'b' holds 1 NULLs and may hold none"):
        join.process_batch(1, pa.table({"k": [1], "ts": [1], "b": pa.array([None], pa.int64())}))
    join.on_close()


def test_names_of_our_own_columns_are_refused() -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("__epoch", pa.int64())])
    with pytest.raises(SchemaError, match="__epoch are lsmstate's own"):
        InstantJoin(LEFT_SIDE, Side("right", schema, ["k"], "ts"))


def test_why_knows_of_rows_matched_since_the_last_epoch_and_of_the_condition(started: Started) -> None:
    join = started(interval(condition=pc.field("b") > 5))
    feed(join, 0, (1, 10, 1, "a"), (2, 10, 1, "a"))
    feed(join, 1, (1, 10, 9, "yes"), (2, 10, 1, "no"))
    assert [fate.status for fate in join.why(0, 1).rows] == ["matched"]
    assert [fate.status for fate in join.why(0, 2).rows] == ["alive"]
