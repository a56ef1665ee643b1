"""Spans of time in words, as Spark's users and SQL write them."""

from __future__ import annotations

import pytest

from lsmstate.join.spans import read_us

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 seconds", 10 * SECOND),
        ("-1.5 Minutes", -90 * SECOND),
        (" 1 hour 30 min", 5400 * SECOND),
        ("2 weeks", 14 * 86_400 * SECOND),
        ("3us", 3),
        ("", 0),
    ],
)
def test_span_is_the_sum_of_its_parts(text: str, us: int) -> None:
    assert read_us(text) == us


@pytest.mark.parametrize(
    "text", [" ", "5", "seconds", "5 parsecs", "1 month", "5 s x", "9" * 19 + " s", "\u0665 s", "5 m"]
)
def test_what_is_no_span_is_none(text: str) -> None:
    assert read_us(text) is None


def test_short_names_that_are_asked_for_are_read_too() -> None:
    assert read_us("1h 5m", {"m": "minute"}) == 3900 * SECOND
    assert read_us("5 ms", {"m": "minute"}) == 5_000
