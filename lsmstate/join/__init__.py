"""Joins on the state engine, free of Spark: the operators, where their state lies, how its epochs hang together."""

from lsmstate.join.asking import why
from lsmstate.join.operators import AsOfJoin, ExpiringJoin, InstantJoin, IntervalJoin
from lsmstate.join.reading import read_state

__all__ = ["AsOfJoin", "ExpiringJoin", "InstantJoin", "IntervalJoin", "read_state", "why"]
