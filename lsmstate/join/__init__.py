"""Joins on the state engine, free of Spark: what a join is, where its state lies, how its epochs hang together."""

from lsmstate.join.reading import read_state

__all__ = ["read_state"]
