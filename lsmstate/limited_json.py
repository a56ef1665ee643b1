"""JSON from disk, which somebody else may have written: refused before it takes much more memory than its own size.

An empty object takes three bytes of JSON and sixty of memory, so what counts is how many values there are. Pure
functions.
"""

from __future__ import annotations

import json
from typing import Any

VALUES_MAX = 8 << 20
DEPTH_MAX = 64  # of what its writer may nest as they like


def loads(text: bytes | bytearray) -> Any:
    """What JSON tells. Raises ValueError or RecursionError if it is none, or holds too many values."""
    if sum(map(text.count, (b",", b"[", b"{"))) > VALUES_MAX:
        raise ValueError("too many values")
    return json.loads(text)


def check_depth(told: object) -> None:
    """Raises ValueError where lists and objects nest so deep that those who walk through them would stumble."""
    level, depth = [told], 0
    while level:
        if depth > DEPTH_MAX:
            raise ValueError(f"lists and objects nest deeper than {DEPTH_MAX}")
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level, depth = [value for values in inner for value in values], depth + 1
