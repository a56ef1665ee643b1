"""The pace of a join: how its watermark follows the rows of both sides.

Per side the newest event time minus a delay, then the lower one of the sides that are not idle, never going back. A
side is idle when it has had no rows for some epochs, or while the other side went on for some event time. All of it is
decided from what earlier epochs have recorded: no clock is asked, so every re-run decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lsmstate.keys import saturate

Seen = tuple[int, int | None]  # the last epoch with rows of a side, or 0; and the newest time of the other side then


@dataclass(frozen=True, slots=True)
class Pace:
    """delays_us: how late rows of each side may come. idle_epochs, idle_us: when a side is idle; never unless told."""

    delays_us: tuple[int, int]
    idle_epochs: int | None = None
    idle_us: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from an epoch: the watermark of the next, what is known of both sides, which of them are idle, and
    their newest times."""

    watermark: int | None
    seen: tuple[Seen, Seen]
    idle: tuple[int, ...]
    newest: tuple[int | None, int | None]


def step(
    pace: Pace, epoch: int, metas: Sequence[Mapping[str, Any]], before: int | None, seen: tuple[Seen, Seen]
) -> Step:
    """What follows from an epoch, told by what its partitions have recorded."""
    newest = [
        max((meta["max_ts"][side] for meta in metas if meta["max_ts"][side] is not None), default=None)
        for side in (0, 1)
    ]
    came = [any(meta.get("rows", (0, 0))[side] for meta in metas) for side in (0, 1)]
    now = []
    for side in (0, 1):
        last, other = seen[side]
        if not any(came):  # an epoch without any rows, as the ticker asks for, makes nobody idle
            last += 1
        if came[side]:
            last, other = epoch, newest[1 - side]
        elif other is None:
            other = newest[1 - side]
        now.append((last, other))
    idle = tuple(side for side in (0, 1) if _is_idle(pace, epoch, now[side], newest[1 - side]))
    awake = [side for side in (0, 1) if side not in idle]
    marks = [_mark(newest[side], pace.delays_us[side]) for side in awake]
    known = [mark for mark in marks if mark is not None]
    watermark = before
    if known and len(known) == len(marks):
        watermark = min(known) if before is None else max(before, min(known))
    return Step(watermark, (now[0], now[1]), idle, (newest[0], newest[1]))


def _is_idle(pace: Pace, epoch: int, seen: Seen, other: int | None) -> bool:
    if pace.idle_epochs is not None:
        return epoch - seen[0] >= pace.idle_epochs
    if pace.idle_us is None or other is None or seen[1] is None:
        return False
    return other - seen[1] >= pace.idle_us


def _mark(newest: int | None, delay: int) -> int | None:
    """In whole milliseconds, as Spark counts."""
    return None if newest is None else saturate((newest // 1000 - delay // 1000) * 1000)
