"""Spans of time as users write them: "10 seconds", "-1.5 minutes", "1 hour 30 minutes", or a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from lsmstate.join.spans import read_us

Span: TypeAlias = str | timedelta

_SHORT = {"m": "minute", "d": "day"}  # not in SQL, where an m may be a month
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
    if not text:
        raise ValueError(f"{what} is empty; write it like '10 seconds'")
    total = read_us(text, _SHORT)
    if total is None:
        raise ValueError(f"{what}: cannot read {span!r}; write it like '10 seconds' or '1 hour 30 minutes'")
    return _checked(int(total), span, what)


def _checked(us: int, span: Span, what: str) -> int:
    if abs(us) > _MAX_US:
        raise ValueError(f"{what}: {span!r} is longer than any join can wait")
    return us
