"""Arguments of a join that say which rows meet, and when: as kinds and paces."""

from __future__ import annotations

from lsmstate.join import kinds
from lsmstate.join.kinds import HOWS, Kind
from lsmstate.join.pace import Pace
from lsmstate.spark.spans import Span, span_us


def kind_of(how: str, within: tuple[Span, Span] | None, ttl: Span | None, instant: bool, asof: Span | None) -> Kind:
    """The kind of join that the arguments ask for."""
    if how not in HOWS:
        raise ValueError(f"how={how!r} is unknown; there are {', '.join(HOWS)}")
    given = {"within": within is not None, "ttl": ttl is not None, "instant": bool(instant), "asof": asof is not None}
    named = [name for name, is_given in given.items() if is_given]
    if len(named) != 1:
        told = f"{' and '.join(named)} exclude each other" if named else "nothing says which times meet"
        raise ValueError(
            f"{told}: give one of within=('-20 seconds', '20 seconds'), ttl='1 hour', instant=True and asof='1 minute'"
        )
    if within is not None:
        check_pair("within", within)
        lower, upper = (span_us(span, "within") for span in within)
        if lower > upper:
            raise ValueError(f"within: {within[0]!r} is above {within[1]!r}; give the least right.ts - left.ts first")
        return Kind(kinds.INTERVAL, how, lower, upper)
    if ttl is not None:
        span = span_us(ttl, "ttl")
        if span < 0:
            raise ValueError(f"ttl: {ttl!r} must not be negative")
        span = span or span_us(kinds.DEFAULT_TTL, "ttl")
        return Kind(kinds.INTERVAL, how, -span, span)
    if asof is not None:
        if how not in ("inner", "left"):
            raise ValueError(f"how={how!r} has no meaning with asof; 'inner' and 'left' have")
        span = span_us(asof, "asof")
        if span < 0:
            raise ValueError(f"asof: {asof!r} must not be negative")
        return Kind(kinds.ASOF, how, -span, 0)
    return kinds.instant(how)


def pace_of(delays: tuple[int, int], idle: int | Span | None) -> Pace:
    """How the watermark follows the rows."""
    if idle is None:
        return Pace(delays)
    if isinstance(idle, int):
        if isinstance(idle, bool) or idle < 1:
            raise ValueError(f"idle: {idle!r} batches are too few; give at least 1, or a span such as '10 minutes'")
        return Pace(delays, idle_epochs=idle)
    return Pace(delays, idle_us=positive_us(idle, "idle"))


def positive_us(span: Span, name: str) -> int:
    """A span above zero, in microseconds."""
    told = span_us(span, name)
    if told <= 0:
        raise ValueError(f"{name}: {span!r} must be above zero")
    return told


def check_pair(name: str, pair: object) -> None:
    """Raises unless there is one value for each side."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name} needs one value for each side, such as {name}=(LEFT, RIGHT), not {pair!r}")
