"""The four joins, to use as a library: each a JoinOperator of its kind.

All take `condition` (what a pair must fulfil besides: a pyarrow.compute.Expression over the columns of the pair, or a
function from a RecordBatch of pairs to booleans), `suffixes` for names that clash, `late` ("count", or "keep" to find
late rows in the state), `max_jump` (rows further after the newest one of their side are set aside) and `options` of the
state.
"""

from __future__ import annotations

from datetime import timedelta

from lsmstate.join import kinds
from lsmstate.join.condition import Condition
from lsmstate.join.operator import JoinOperator
from lsmstate.options import Options
from lsmstate.schema import Side

_SUFFIXES = ("", "_right")


class IntervalJoin(JoinOperator):
    """Rows with equal keys and lower <= right.ts - left.ts <= upper. Pairs come at once."""

    def __init__(
        self,
        left: Side,
        right: Side,
        *,
        lower: timedelta,
        upper: timedelta,
        how: str = "inner",
        condition: Condition | None = None,
        suffixes: tuple[str, str] = _SUFFIXES,
        late: str = "count",
        max_jump: timedelta | None = None,
        options: Options | None = None,
    ) -> None:
        kind = kinds.interval(lower, upper, how)
        super().__init__(left, right, kind, condition, suffixes, late, max_jump, options)


class ExpiringJoin(JoinOperator):
    """Rows with equal keys whose times lie no further apart than `ttl` (24 hours if it is 0 or left out)."""

    def __init__(
        self,
        left: Side,
        right: Side,
        *,
        ttl: timedelta | None = None,
        how: str = "inner",
        condition: Condition | None = None,
        suffixes: tuple[str, str] = _SUFFIXES,
        late: str = "count",
        max_jump: timedelta | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(left, right, kinds.expiring(ttl, how), condition, suffixes, late, max_jump, options)


class InstantJoin(JoinOperator):
    """Rows with equal keys and equal times. They come out when the watermark passes their time."""

    def __init__(
        self,
        left: Side,
        right: Side,
        *,
        how: str = "inner",
        condition: Condition | None = None,
        suffixes: tuple[str, str] = _SUFFIXES,
        late: str = "count",
        max_jump: timedelta | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(left, right, kinds.instant(how), condition, suffixes, late, max_jump, options)


class AsOfJoin(JoinOperator):
    """Each left row with the latest right row at or before it, at most `tolerance` before; types inner and left.

    Rows come out when the watermark passes their time. Of several right rows with the same time, the greatest by its
    columns counts.
    """

    def __init__(
        self,
        left: Side,
        right: Side,
        *,
        tolerance: timedelta,
        how: str = "inner",
        condition: Condition | None = None,
        suffixes: tuple[str, str] = _SUFFIXES,
        late: str = "count",
        max_jump: timedelta | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(left, right, kinds.as_of(tolerance, how), condition, suffixes, late, max_jump, options)
