"""The life of a join operator: starts, checkpoints, restarts, failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iopool import MemoryController, WorkerPool
from lsmstate import EpochError, FencedError, LsmStateError, SchemaError, Side, StoreClosedError
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.join import InstantJoin, IntervalJoin
from tests.support.join_cases import batch_of, us
from tests.support.join_operator import LEFT_SIDE, RIGHT_SIDE, Started, checkpoint, feed, interval, taken


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


def test_operators_of_a_process_share_pool_and_memory(tmp_path: Path) -> None:
    pool, memory = WorkerPool(), MemoryController(1 << 20, 2 << 20)
    joins = [interval(), interval()]
    for number, join in enumerate(joins):
        join.on_start(OperatorContext(tmp_path / str(number), memory=memory, pool=pool))
        feed(join, 0, (1, 1, 1, "a"))
        checkpoint(join, 1)
        join.on_close()
    pool.close(10)


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


def test_columns_of_a_running_join_may_change_with_its_rows_and_marks_kept(tmp_path: Path) -> None:
    def started_with(left: Side) -> IntervalJoin:
        join = IntervalJoin(left, RIGHT_SIDE, lower=us(-5), upper=us(5), how="left", late="keep")
        join.on_start(OperatorContext(tmp_path))
        return join

    join = started_with(LEFT_SIDE)
    feed(join, 0, (1, 10, 1, "a"), (2, 10, 2, "b"))
    assert len(feed(join, 1, (1, 12, 3, "r"))) == 1
    checkpoint(join, 1)
    join.on_close()
    schema = LEFT_SIDE.schema.append(pa.field("more", pa.float64()))
    join = started_with(Side("left", schema, ["k"], "ts"))
    row = dict(zip(schema.names, (3, 11, 5, "c", 0.5), strict=True))
    assert taken(join.process_batch(0, pa.RecordBatch.from_pylist([row], schema))) == []
    assert taken(join.process_batch(1, batch_of(1, [(3, 11, 7, "s")])))[0][:5] == (3, 11, 5, "c", 0.5)
    assert taken(join.process_watermark(15)) == [(2, 10, 2, "b", None, None, None, None)]  # 1 and 3 have met somebody
    join.on_close()
