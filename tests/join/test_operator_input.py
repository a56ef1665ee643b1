"""What join operators refuse, with a word on what to do, before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsmstate import LsmStateError, SchemaError, Side
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.join import AsOfJoin, ExpiringJoin, InstantJoin
from tests.support.join_cases import RIGHT, us
from tests.support.join_operator import LEFT_SIDE, RIGHT_SIDE, Started, checkpoint, feed, interval, taken


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
    with pytest.raises(LsmStateError, match="pairs would be missing; start at the last epoch"):
        feed(join, 0, (2, 11, 3, "c"))
    with pytest.raises(LsmStateError, match="pairs would be missing; start at the last epoch"):
        checkpoint(join, 1)


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


def test_barrier_with_nonsense_is_refused() -> None:
    for told in ({"epoch": 0}, {"epoch": True}, {"epoch": 2, "min_epoch": 3}):
        with pytest.raises(ValueError, match="CheckpointBarrier"):
            CheckpointBarrier(**told)


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
