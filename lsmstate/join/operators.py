"""The four joins, to use as a library: each a JoinOperator of its kind, with `how` and what `More` tells."""

from __future__ import annotations

from datetime import timedelta
from typing import Unpack

from lsmstate.join import kinds
from lsmstate.join.operator import JoinOperator
from lsmstate.join.terms import More
from lsmstate.schema import Side


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
        **more: Unpack[More],
    ) -> None:
        kind = kinds.interval(lower, upper, how)
        super().__init__(left, right, kind, **more)


class ExpiringJoin(JoinOperator):
    """Rows with equal keys whose times lie no further apart than `ttl` (24 hours if it is 0 or left out)."""

    def __init__(
        self,
        left: Side,
        right: Side,
        *,
        ttl: timedelta | None = None,
        how: str = "inner",
        **more: Unpack[More],
    ) -> None:
        super().__init__(left, right, kinds.expiring(ttl, how), **more)


class InstantJoin(JoinOperator):
    """Rows with equal keys and equal times. They come out when the watermark passes their time."""

    def __init__(
        self,
        left: Side,
        right: Side,
        *,
        how: str = "inner",
        **more: Unpack[More],
    ) -> None:
        super().__init__(left, right, kinds.instant(how), **more)


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
        **more: Unpack[More],
    ) -> None:
        super().__init__(left, right, kinds.as_of(tolerance, how), **more)
