"""Documents (manifest/codec.py): the line with the checksum, and JSON behind it."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate.manifest.codec import decode, encode
from tests.fuzz.kit import documented, sealed

NAME = "JOB"


def seeds() -> Iterator[tuple[str, bytes]]:
    yield "plain", encode(NAME, {"a": 1, "b": [None, "x"]})
    yield "empty", encode(NAME, {})


def run(data: bytes) -> None:
    for document in (data, sealed(NAME, data), sealed(NAME, data.partition(b"\n")[2][:-1])):
        with documented():
            own, body = decode("/where", document, NAME)
            assert own == NAME
            assert isinstance(body, dict)
