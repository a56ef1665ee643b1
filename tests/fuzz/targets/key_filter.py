"""The filter over the keys of an SSTable (sstable/filters.py), which pybloom-live reads."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate.keys import encode_key
from lsmstate.sstable.filters import KeyFilter, build_key_filter
from tests.fuzz.kit import documented

KEYS = [encode_key(side, ts) for side in (0, 1) for ts in (-5_000_000, 0, 60_000_000)]


def seeds() -> Iterator[tuple[str, bytes]]:
    yield "few", build_key_filter(KEYS)
    yield "many", build_key_filter(encode_key(0, ts) for ts in range(300))


def run(data: bytes) -> None:
    for content in (data, data[:40] + data[40:].ljust(80, b"\xff")):
        with documented():
            asked = KeyFilter("/file", memoryview(content))
            asked.may_contain(KEYS)
            assert asked.keys >= 0
            assert 0 < asked.error_rate <= 1
