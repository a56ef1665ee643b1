"""The terms of a join operator: what all of them take, and what they tell of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from lsmstate.engine.heavy import Heavy
from lsmstate.engine.stats import Stats
from lsmstate.join.condition import Condition
from lsmstate.join.incoming import Counts
from lsmstate.options import Options


class More(TypedDict, total=False):
    """What all joins take.

    condition: what a pair must fulfil besides: a pyarrow.compute.Expression over the columns of the pair, or a function
    from a RecordBatch of pairs to booleans. suffixes: for names that clash. late: "count", or "keep" to find late rows
    in the state. max_jump: rows further after the newest one of their side are set aside. options: of the state.
    """

    condition: Condition | None
    suffixes: tuple[str, str]
    late: str
    max_jump: timedelta | None
    options: Options | None


@dataclass(frozen=True, slots=True)
class JoinStats:
    """An operator at one moment: what it has seen, the watermark, the keys with the most rows of each side (the values
    of the key columns, and rows), and the numbers of its state."""

    counts: Counts
    watermark_us: int | None
    heaviest: tuple[list[Heavy], list[Heavy]]
    state: Stats
