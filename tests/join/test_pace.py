"""The watermark follows both sides; who is idle is decided from what epochs have recorded."""

from __future__ import annotations

from typing import Any

from lsmstate.join.pace import Pace, Seen, Step, step

NOBODY: tuple[Seen, Seen] = ((0, None), (0, None))


def meta(left: int | None, right: int | None, rows: tuple[int, int]) -> dict[str, Any]:
    return {"max_ts": [left, right], "rows": list(rows)}


def walk(pace: Pace, *epochs: dict[str, Any]) -> list[Step]:
    told: list[Step] = []
    for number, recorded in enumerate(epochs, 1):
        last = told[-1] if told else Step(None, NOBODY, (), (None, None))
        told.append(step(pace, number, [recorded], last.watermark, last.seen))
    return told


def test_watermark_is_the_lower_one_and_never_goes_back() -> None:
    told = walk(Pace((1000, 0)), meta(9000, None, (1, 0)), meta(9000, 5000, (0, 1)), meta(9000, 20_000, (0, 1)))
    assert [each.watermark for each in told] == [None, 5000, 8000]


def test_side_without_rows_for_some_epochs_is_idle_until_it_has_some() -> None:
    silent = [meta(5000, n * 10_000, (0, 1)) for n in range(1, 4)]
    told = walk(Pace((0, 0), idle_epochs=2), meta(5000, None, (1, 0)), *silent, meta(6000, 30_000, (1, 0)))
    assert [each.idle for each in told] == [(), (), (0,), (0,), ()]
    assert [each.watermark for each in told] == [None, 5000, 20_000, 30_000, 30_000]


def test_epochs_without_any_rows_make_nobody_idle() -> None:
    empty = meta(5000, 9000, (0, 0))
    told = walk(Pace((0, 0), idle_epochs=2), meta(5000, None, (1, 0)), meta(5000, 9000, (0, 1)), empty, empty, empty)
    assert told[-1].idle == ()
    assert told[-1].watermark == 5000


def test_side_is_idle_while_the_other_goes_on_for_some_time() -> None:
    others = [meta(5000, ts, (0, 1)) for ts in (6000, 8000, 9000)]
    told = walk(Pace((0, 0), idle_us=3000), meta(5000, 6000, (1, 1)), *others)
    assert [each.idle for each in told] == [(), (), (), (0,)]
    assert told[-1].watermark == 9000


def test_both_idle_sides_leave_the_watermark_where_it_is() -> None:
    told = walk(Pace((0, 0), idle_us=0), meta(5000, 6000, (1, 1)), meta(5000, 6000, (0, 0)))
    assert told[-1].idle == (0, 1)
    assert told[-1].watermark is None
