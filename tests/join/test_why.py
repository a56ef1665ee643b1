"""Why: what became of a row, in data and in words, from an operator, from its directory and from a join on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import lsmstate
from lsmstate import EpochError, NotAStateError, SchemaError, Side, StateStore
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.join import AsOfJoin, IntervalJoin
from lsmstate.join.operator import JoinOperator
from tests.support.join_cases import LEFT, RIGHT, batch_of, us
from tests.support.join_home import START_US, JoinHome
from tests.support.join_operator import Started
from tests.support.join_operator import interval as left_join

SECOND = 1_000_000
T0 = 1_767_225_600 * SECOND  # 2026-01-01


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A left join: 1 is matched, 2 waits, 3 came too late, 4 expired matched, 5 expired alone; 6 never came."""
    join = IntervalJoin(
        Side("left", LEFT, ["k"], "ts"),
        Side("right", RIGHT, ["k"], "ts"),
        lower=us(-10 * SECOND),
        upper=us(10 * SECOND),
        how="left",
        late="keep",
    )
    join.on_start(OperatorContext(tmp_path / "state"))
    feed(join, 0, (4, T0, 1, "d"), (5, T0, 1, "e"))
    feed(join, 1, (4, T0 + SECOND, 2, "x"))
    checkpoint(join, 1)
    feed(join, 0, (1, T0 + 30 * SECOND, 1, "a"), (2, T0 + 31 * SECOND, 1, "b"))
    checkpoint(join, 2)
    feed(join, 1, (1, T0 + 32 * SECOND, 2, "x"))
    list(join.process_watermark(T0 + 20 * SECOND))
    checkpoint(join, 3)
    feed(join, 0, (3, T0 + 5 * SECOND, 1, "c"))
    checkpoint(join, 4)
    join.on_close()
    return tmp_path / "state"


def feed(join: JoinOperator, side: int, *rows: Any) -> None:
    list(join.process_batch(side, batch_of(side, rows)))


def checkpoint(join: JoinOperator, epoch: int) -> None:
    join.handle_checkpoint(CheckpointBarrier(epoch))
    join.commit(epoch)


@pytest.mark.parametrize(
    ("key", "status", "epoch", "words"),
    [
        (
            1,
            "matched",
            3,
            "is matched since epoch 3; 1 row of its key and near times is in the state now. It is kept",
        ),
        (
            2,
            "alive",
            None,
            "is alive and has met nobody yet. It waits until the watermark reaches 2026-01-01T00:00:41Z",
        ),
        (
            3,
            "late",
            4,
            "came too late and took no part: in epoch 4 the watermark was at 2026-01-01T00:00:20Z already",
        ),
        (
            4,
            "expired",
            3,
            "in epoch 3, when the watermark reached 2026-01-01T00:00:20Z; it was matched since epoch 1.",
        ),
        (
            5,
            "expired",
            3,
            "in epoch 3, when the watermark reached 2026-01-01T00:00:20Z; it had met nobody before that",
        ),
    ],
)
def test_fate_of_a_row(key: int, status: str, epoch: int | None, words: str, state: Path) -> None:
    told = lsmstate.why(state, "left", key)
    (fate,) = told.rows
    assert (fate.status, fate.epoch) == (status, epoch)
    assert words in told.text
    assert "left row of 2026-01-01T00:00:" in told.text


def test_unknown_key_is_never_seen(state: Path) -> None:
    told = lsmstate.why(state, "left", 6)
    assert told.rows == ()
    assert "No left row with this key is in the state at epoch 4, nor back to epoch 1" in told.text


def test_question_about_an_older_epoch(state: Path) -> None:
    assert [fate.status for fate in lsmstate.why(state, "left", 1, epoch=2).rows] == ["alive"]
    assert lsmstate.why(state, "left", 3, epoch=2).rows == ()
    assert [fate.status for fate in lsmstate.why(state, "right", 4, epoch=2).rows] == ["matched"]


def test_operator_tells_of_rows_that_are_not_committed(tmp_path: Path) -> None:
    join = AsOfJoin(Side("left", LEFT, ["k"], "ts"), Side("right", RIGHT, ["k"], "ts"), tolerance=us(SECOND))
    join.on_start(OperatorContext(tmp_path))
    feed(join, 0, (1, T0, 1, "a"))
    feed(join, 1, (1, T0, 1, "a"))
    assert "waits: it comes out once the watermark reaches" in join.why(0, 1).text
    assert "1 row it may meet so far" in join.why(0, 1).text
    join.on_close()


def test_join_on_disk_is_asked_in_the_partition_of_the_key(tmp_path: Path) -> None:
    home = JoinHome(tmp_path / "home").epochs(3)
    for number in range(2000, 2010):
        (fate,) = lsmstate.why(home.path, "left", number).rows
        assert fate.status == "matched"
        assert fate.ts_us == START_US + 120_000_000 + (number - 2000) * 100_000


def test_bad_questions(state: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="side must be 'left' or 'right'"):
        lsmstate.why(state, "middle", 1)
    with pytest.raises(SchemaError, match="the key has 1 columns, not 2"):
        lsmstate.why(state, "left", (1, 2))
    with pytest.raises(SchemaError, match="int64, which str does not fit"):
        lsmstate.why(state, "left", "x")
    with pytest.raises(EpochError, match="epoch 9 does not exist, or was retired; there are: 1, 2, 3, 4"):
        lsmstate.why(state, "left", 1, epoch=9)
    with StateStore.open(tmp_path / "plain", [Side("s", LEFT, ["k"], "ts")]):
        pass
    with pytest.raises(NotAStateError, match="is no state of a join"):
        lsmstate.why(tmp_path / "plain", "left", 1)


def test_why_knows_of_rows_matched_since_the_last_epoch_and_of_the_condition(started: Started) -> None:
    join = started(left_join(condition=pc.field("b") > 5))
    feed(join, 0, (1, 10, 1, "a"), (2, 10, 1, "a"))
    feed(join, 1, (1, 10, 9, "yes"), (2, 10, 1, "no"))
    assert [fate.status for fate in join.why(0, 1).rows] == ["matched"]
    assert [fate.status for fate in join.why(0, 2).rows] == ["alive"]
