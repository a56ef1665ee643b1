"""Which matching a kind of join needs."""

from __future__ import annotations

from lsmstate.engine import StateStore
from lsmstate.join.interval import IntervalMatching
from lsmstate.join.kinds import ASOF, INSTANT, INTERVAL
from lsmstate.join.matching import Matching
from lsmstate.join.shape import Shape
from lsmstate.join.waiting import AsOfMatching, InstantMatching

_MATCHINGS: dict[str, type[Matching]] = {INTERVAL: IntervalMatching, INSTANT: InstantMatching, ASOF: AsOfMatching}


def matching_of(shape: Shape, store: StateStore) -> Matching:
    """The matching of a join on an open state."""
    return _MATCHINGS[shape.kind.match](shape, store)
