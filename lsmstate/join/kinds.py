"""Kinds of joins: which rows meet, which of them come out, and for how long they have to be kept.

Three ways to meet, all between rows with equal keys: by an **interval** of times, at the same **instant**, and
**as of** the time of the left row. An interval join finds pairs at once; the other two wait until the watermark says
that nothing can change any more. Six types: what becomes of rows that meet nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lsmstate.keys import TS_MAX

INTERVAL, INSTANT, ASOF = "interval", "instant", "asof"
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
DEFAULT_TTL = timedelta(hours=24)
_SPAN_MAX = TS_MAX // 2
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of join: lower <= right.ts - left.ts <= upper, in microseconds."""

    match: str = INTERVAL
    how: str = "inner"
    lower_us: int = 0
    upper_us: int = 0

    def __post_init__(self) -> None:
        known = HOWS if self.match != ASOF else ("inner", "left")
        if self.how not in known:
            raise ValueError(f"how must be one of {', '.join(known)}, not {self.how!r}")
        if self.lower_us > self.upper_us:
            raise ValueError(
                f"lower ({self.lower_us} us) is above upper ({self.upper_us} us): no rows can meet; swap them"
            )
        if max(abs(self.lower_us), abs(self.upper_us)) > _SPAN_MAX:
            raise ValueError("an interval of more than a hundred thousand years is out of range")

    @property
    def pairs(self) -> bool:
        """Whether pairs come out; otherwise only left rows do."""
        return self.how not in ("left_semi", "left_anti")

    def comes_alone(self, side: int) -> bool:
        """Whether a row of a side comes out when it has met nobody."""
        return self.how in (("left", "full", "left_anti"), ("right", "full"))[side]

    def is_marked(self, side: int) -> bool:
        """Whether the state has to know which rows of a side have met somebody."""
        return self.match == INTERVAL and (self.comes_alone(side) or (side == 0 and self.how == "left_semi"))

    def reach(self, side: int) -> tuple[int, int]:
        """For a row of a side, how far before and after it rows of the other side may lie that it meets."""
        return (self.lower_us, self.upper_us) if side == 0 else (-self.upper_us, -self.lower_us)

    @property
    def longest_wait_us(self) -> int:
        """How far behind the watermark the times of a result may lie."""
        return max(self.reach(0)[1], self.reach(1)[1], 0)

    def retention(self, side: int) -> timedelta:
        """How long rows of a side can still meet rows that are not late."""
        return timedelta(microseconds=max(self.reach(side)[1], 0))


def interval(lower: timedelta, upper: timedelta, how: str) -> Kind:
    """Rows meet where right.ts - left.ts lies between the two."""
    return Kind(INTERVAL, how, _span_us(lower, "lower"), _span_us(upper, "upper"))


def expiring(ttl: timedelta | None, how: str) -> Kind:
    """Rows meet that lie no further apart than `ttl`; 24 hours if there is none."""
    span = _span_us(ttl or DEFAULT_TTL, "ttl")
    if span < 0:
        raise ValueError(f"ttl must not be negative, but it is {ttl}")
    return Kind(INTERVAL, how, -span, span)


def instant(how: str) -> Kind:
    """Rows meet that have the same time."""
    return Kind(INSTANT, how)


def as_of(tolerance: timedelta, how: str) -> Kind:
    """Each left row meets the latest right row at or before it, at most `tolerance` before."""
    span = _span_us(tolerance, "tolerance")
    if span < 0:
        raise ValueError(f"tolerance must not be negative, but it is {tolerance}")
    return Kind(ASOF, how, -span, 0)


def _span_us(span: object, name: str) -> int:
    if not isinstance(span, timedelta):
        raise ValueError(f"{name} must be a timedelta, not {type(span).__name__}")
    return span // _US
