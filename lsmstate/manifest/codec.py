"""Small documents on disk: one line with magic, version, name and checksum, then JSON.

The checksum covers the document's name, so that a document cannot stand in for another.
"""

from __future__ import annotations

import json
import re
from typing import Any

import xxhash

from lsmstate.errors import CorruptionError, FormatVersionError
from lsmstate.limited_json import loads

PLAIN, NESTED = 1, 2  # versions: a document that tells of no nested column is written as before
VERSION = NESTED
DOCUMENT_MAX_BYTES = 256 << 20
_MAGIC = "lsmstate"
_HEADER_MAX = 256


def encode(name: str, body: dict[str, Any], version: int = PLAIN) -> bytes:
    """The bytes of a document. Those that tell of sides with nested columns are of the version that knows them, so that
    an older release says so, and does not take them for damaged."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    return f"{_MAGIC} {version} {name} {digest_of(name, text, version)}\n".encode() + text + b"\n"


def decode(path: str, data: bytes, name: str | None = None) -> tuple[str, dict[str, Any]]:
    """The name and the body of a document, its checksum found right. `name` is the one that it must have."""
    end = data.find(b"\n", 0, _HEADER_MAX)
    parts = data[: max(end, 0)].decode("ascii", "replace").split(" ")
    if end < 0 or len(parts) != 4 or parts[0] != _MAGIC or not re.fullmatch("[1-9][0-9]{0,8}", parts[1]):
        raise CorruptionError(path, 0, "a document of lsmstate", "other bytes")
    _, version, own, told = parts
    if int(version) not in (PLAIN, NESTED):
        raise FormatVersionError(path, int(version), VERSION)
    if name is not None and own != name:
        raise CorruptionError(path, 0, f"the document {name}", "another")
    text = data[end + 1 : -1]
    got = digest_of(own, text, int(version))
    if told != got or data[-1:] != b"\n":
        raise CorruptionError(path, 0, "the checksum of its content", got)
    try:
        body = loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(path, end + 1, "JSON", type(error).__name__) from error
    if not isinstance(body, dict):
        raise CorruptionError(path, end + 1, "a JSON object", type(body).__name__)
    return own, body


def digest_of(name: str, text: bytes, version: int = PLAIN) -> str:
    """The checksum of a document, bound to its name and version."""
    return str(xxhash.xxh3_128_hexdigest(f"{version} {name}\n".encode() + text))
