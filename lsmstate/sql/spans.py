"""Spans of time in options and in SQL: '10 seconds', '1 hour 30 minutes', INTERVAL '5' SECOND.

Months and years are refused: they have no fixed length.
"""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS_US = {
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
_MAX_US = 1 << 60
EXPECTED = f"write it like '10 seconds' or '1 hour 30 minutes', in {', '.join(f'{unit}s' for unit in _UNITS_US)}"


def span_us(text: str) -> int:
    """A span in microseconds. Raises ValueError that says what is expected."""
    total, at = Decimal(0), 0
    while at < len(text):
        match = _PART.match(text, at)
        unit = "" if match is None else match[2].lower()
        unit = _SHORT.get(unit, unit.removesuffix("s"))
        if match is None or unit not in _UNITS_US:
            raise ValueError(f"{text[:80]!r} is no span of time; {EXPECTED}")
        total += Decimal(match[1]) * _UNITS_US[unit]
        at = match.end()
    if not text.strip():
        raise ValueError(f"an empty text is no span of time; {EXPECTED}")
    if total != int(total):
        raise ValueError(f"{text[:80]!r} is finer than a microsecond")
    if abs(total) > _MAX_US:
        raise ValueError(f"{text[:80]!r} is longer than any join can wait")
    return int(total)
