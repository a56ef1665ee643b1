"""Numbers, times and names in words for people; and text that cannot speak to the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lsmstate.keys import TS_MAX, TS_MIN

_UNITS_US = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1))
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def safe(text: str) -> str:
    """The text with all that is not plainly visible written as an escape: controls, direction marks, surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cut(text: str, most: int) -> str:
    """The text, or its beginning and how long it is."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def plainly(what: str, path: str) -> str:
    """What an error says of a file, for a reader who sees its name and what to do about it beside it."""
    return what.removeprefix(f"{path}: ").partition("; run `lsmstate verify`")[0]


def time_text(ts_us: int | None) -> str:
    """A time in microseconds as ISO 8601 in UTC, without a fraction that is zero."""
    if ts_us is None:
        return "none"
    if not TS_MIN < ts_us <= TS_MAX:
        return f"{ts_us} us"
    text = str(np.datetime64(ts_us, "us"))
    whole, _, fraction = text.partition(".")
    fraction = fraction[:3] if fraction.endswith("000") else fraction
    return f"{whole}Z" if fraction in ("", "000") else f"{whole}.{fraction}Z"


def span_text(span_us: int | None) -> str:
    """A length of time as `1h 30m`."""
    if span_us is None:
        return "for ever"
    if span_us < 0:
        return f"-{span_text(-span_us)}"
    parts, rest = [], span_us
    for unit, size in _UNITS_US:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count:,}{unit}")
    return " ".join(parts) or "0s"


def size_text(size_bytes: float) -> str:
    """A size as `4.1 MiB`."""
    size = float(size_bytes)
    if size < 1024:
        return f"{int(size)} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1023.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:,.1f} TiB"


def percent_text(share: float | None) -> str:
    """A share as `1.2%`."""
    return "?" if share is None else f"{share:.1%}" if share >= 0.001 or not share else "<0.1%"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """`1 file`, `2,000 files`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def epochs_text(epochs: Iterable[int], noun: str = "epoch", plural: str = "epochs") -> str:
    """Epochs as `epochs 3 to 7, 9`, `epoch 4` or `no epoch`."""
    ordered = sorted(set(epochs))
    if not ordered:
        return f"no {noun}"
    parts = [_range_text(group) for group in _neighbours(ordered)]
    return f"{noun if len(ordered) == 1 else plural} {', '.join(parts)}"


def _neighbours(ordered: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for number in ordered:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def _range_text(group: Sequence[int]) -> str:
    if len(group) < 3:
        return ", ".join(map(str, group))
    return f"{group[0]} to {group[-1]}"


def kept_text(side: Mapping[str, Any]) -> str:
    """How a side of a report is looked up, and how long its rows are kept."""
    kept = "all rows kept" if side["retention_us"] is None else f"rows kept {span_text(side['retention_us'])}"
    return f"key {', '.join(side['keys'])}; time {side['time']}; {kept}; buckets of {span_text(side['bucket_us'])}"


def columns_text(side: Mapping[str, Any]) -> str:
    """The columns of a side of a report."""
    columns = [f"{c['name']} {c['type']}{'' if c['nullable'] else ' not null'}" for c in side["columns"]]
    return f"columns: {', '.join(columns)}"
