"""Join operators in tests: a left join by interval, fed with rows as tuples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lsmstate import Side
from lsmstate.checkpoint import CheckpointBarrier
from lsmstate.join import IntervalJoin
from lsmstate.join.operator import JoinOperator
from tests.support.join_cases import LEFT, RIGHT, Row, batch_of, us

LEFT_SIDE, RIGHT_SIDE = Side("left", LEFT, ["k"], "ts"), Side("right", RIGHT, ["k"], "ts")
Started = Callable[..., JoinOperator]


def interval(**options: Any) -> IntervalJoin:
    told = {"lower": us(-5), "upper": us(5), "how": "left", **options}
    return IntervalJoin(LEFT_SIDE, RIGHT_SIDE, **told)


def feed(join: JoinOperator, side: int, *rows: Row) -> list[tuple[Any, ...]]:
    return taken(join.process_batch(side, batch_of(side, rows)))


def taken(batches: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def checkpoint(join: JoinOperator, epoch: int) -> None:
    assert join.handle_checkpoint(CheckpointBarrier(epoch))
    join.commit(epoch)
