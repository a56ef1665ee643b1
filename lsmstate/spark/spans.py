"""Spans of time as users write them: "10 seconds", "-1.5 minutes", "1 hour 30 minutes", or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import TypeAlias

Span: TypeAlias = str | timedelta

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "min": "minute",
    "m": "minute",
    "h": "hour",
    "d": "day",
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_MAX_US = 1 << 61


def span_us(span: Span, what: str) -> int:
    """The span in microseconds. `what` names it in the error."""
    if isinstance(span, timedelta):
        return _checked(span // timedelta(microseconds=1), span, what)
    if not isinstance(span, str):
        raise ValueError(f"{what} must be text such as '10 seconds', or a timedelta, not {span!r}")
    text = span.strip()
    if text.lower().startswith("interval "):
        text = text[9:]
    total, at = Decimal(0), 0
    while at < len(text):
        match = _PART.match(text, at)
        unit = None if match is None else match[2].lower()
        unit = _SHORT.get(unit or "", (unit or "").removesuffix("s"))
        if match is None or unit not in _UNITS_US:
            raise ValueError(f"{what}: cannot read {span!r}; write it like '10 seconds' or '1 hour 30 minutes'")
        total += Decimal(match[1]) * _UNITS_US[unit]
        at = match.end()
    if not text:
        raise ValueError(f"{what} is empty; write it like '10 seconds'")
    return _checked(int(total), span, what)


def _checked(us: int, span: Span, what: str) -> int:
    if abs(us) > _MAX_US:
        raise ValueError(f"{what}: {span!r} is longer than any join can wait")
    return us
