"""Spans of time in options and in SQL: '10 seconds', '1 hour 30 minutes', INTERVAL '5' SECOND."""

from __future__ import annotations

from lsmstate.join.spans import UNITS_US, read_us

_MAX_US = 1 << 60
EXPECTED = f"write it like '10 seconds' or '1 hour 30 minutes', in {', '.join(f'{unit}s' for unit in UNITS_US)}"


def span_us(text: str) -> int:
    """A span in microseconds. Raises ValueError that says what is expected."""
    if not text.strip():
        raise ValueError(f"an empty text is no span of time; {EXPECTED}")
    total = read_us(text)
    if total is None:
        raise ValueError(f"{text[:80]!r} is no span of time; {EXPECTED}")
    if total != int(total):
        raise ValueError(f"{text[:80]!r} is finer than a microsecond")
    if abs(total) > _MAX_US:
        raise ValueError(f"{text[:80]!r} is longer than any join can wait")
    return int(total)
