"""Spans of time in words: "10 seconds", "-1.5 minutes", "1 hour 30 minutes".

Months and years are none: they have no fixed length. What is asked of a span, and how that is said, is for the caller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {"us": "microsecond", "ms": "millisecond", "s": "second", "sec": "second", "min": "minute", "h": "hour"}
_PART = re.compile(r"\s*([+-]?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)


def read_us(text: str, more: Mapping[str, str] = MappingProxyType({})) -> Decimal | None:
    """The microseconds in a text, 0 in one of nothing; None where it cannot be read. more: short names of units."""
    total, at = Decimal(0), 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            return None
        unit = match[2].lower()
        unit = _SHORT.get(unit) or more.get(unit, unit.removesuffix("s"))
        if unit not in UNITS_US:
            return None
        total += Decimal(match[1]) * UNITS_US[unit]
        at = match.end()
    return total
