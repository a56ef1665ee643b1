"""Words for numbers, times and values of every type that the engine stores."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lsmstate.cli.values import cell_text, plain_json, plain_values
from lsmstate.cli.wording import epochs_text, percent_text, safe, size_text, span_text, time_text
from lsmstate.keys import TS_MAX, TS_MIN


@pytest.mark.parametrize(
    ("ts", "text"),
    [
        (None, "none"),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_500_000, "1970-01-01T00:00:01.500Z"),
        (TS_MAX, "294247-01-10T04:00:54.775807Z"),
        (TS_MIN, "-9223372036854775808 us"),
        (10**40, f"{10**40} us"),
    ],
)
def test_time_is_iso_in_utc_or_a_plain_number(ts: int | None, text: str) -> None:
    assert time_text(ts) == text


def test_numbers_read_well() -> None:
    assert [span_text(n) for n in (None, 0, 1, 90_000_000, 86_400_000_000)] == ["for ever", "0s", "1us", "1m 30s", "1d"]
    assert [size_text(n) for n in (0, 1023, 1024, 1_048_575, 5 << 30, 3 << 40)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.0 MiB", "5.0 GiB", "3.0 TiB"),
    ]
    assert [percent_text(n) for n in (None, 0.0, 0.0001, 0.0123, 1.0)] == ["?", "0.0%", "<0.1%", "1.2%", "100.0%"]
    assert [epochs_text(e) for e in ([], [4], [1, 2], [3, 1, 2, 9])] == [
        *("no epoch", "epoch 4", "epochs 1, 2", "epochs 1 to 3, 9"),
    ]


def test_safe_text_is_printable_and_keeps_plain_letters() -> None:
    assert safe("Grüße, 世界 [x]") == "Grüße, 世界 [x]"
    assert safe("\x1b\x00\u202e\udc80\U000e0001") == "\\x1b\\x00\\u202e\\udc80\\U000e0001"


@pytest.mark.parametrize(
    ("column", "plain"),
    [
        (pa.array([1, None]), [1, None]),
        (pa.array([True, None]), [True, None]),
        (pa.array([1.5, float("nan"), float("-inf")]), [1.5, "nan", "-inf"]),
        (pa.array([1.5], pa.float16()), [1.5]),
        (pa.array(["x", None], pa.large_string()), ["x", None]),
        (pa.array([b"\x00\xff", None]), ["0x00ff", None]),
        (pa.array([b"ab"], pa.binary(2)), ["0x6162"]),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), ["1.50"]),
        (pa.array([1, None], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001", None]),
        (pa.array([0], pa.timestamp("ms", "Europe/Paris")), ["1970-01-01T00:00:00.000Z"]),
        (pa.array([TS_MIN], pa.timestamp("us")), ["-9223372036854775808 us"]),
        (pa.array([2**31 - 1], pa.date32()), ["5881580-07-11"]),
        (pa.array([86_400_000], pa.date64()), ["1970-01-02T00:00:00.000"]),
        (pa.array([5], pa.duration("ms")), ["5 ms"]),
        (pa.array([3_600], pa.time32("s")), ["01:00:00"]),
    ],
)
def test_every_type_has_a_plain_form(column: pa.Array, plain: list[Any]) -> None:
    assert plain_values(column) == plain


def test_text_that_is_not_utf8_has_a_form() -> None:
    data = [None, pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00"), pa.py_buffer(b"a\xff")]
    assert plain_values(pa.Array.from_buffers(pa.string(), 1, data)) == ["a\\xff"]


def test_event_time_is_a_time_whatever_its_type() -> None:
    assert plain_values(pa.array([0]), is_time=True) == plain_values(pa.array([0], pa.timestamp("us")), is_time=True)


def test_cells_are_short_and_quote_what_could_mislead() -> None:
    told = [cell_text(v) for v in (None, "NULL", "", " x", True, "true", 7, "x" * 100)]
    assert told == ["NULL", "'NULL'", "''", "' x'", "true", "'true'", "7", "x" * 60 + "… (100 characters)"]


def test_deep_json_is_cut_off() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    assert "..." in str(plain_json({"deep": deep}))
