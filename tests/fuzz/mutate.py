"""Changes to inputs, the same in every run: of bytes, and of JSON inside them, so that they stay JSON.

A mutation that a parser of JSON refuses tests that parser and nothing behind it; so most of those here replace, drop or
double one value, and leave the rest as it was.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

NASTY_NUMBERS = (0, 1, -1, 2, 127, 255, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63))
NASTY_NUMBERS += (1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 64), 10**40)
NASTY: tuple[Any, ...] = (*NASTY_NUMBERS, 0.5, 1e300, float("nan"), float("inf"), None, True, "", "0", "..", "../../x")
NASTY += ("\x00\x1b[2J", "\ud800", [], {}, [[]], {"": {}}, "x" * 200)


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Many changed inputs. The same for the same arguments."""
    random_ = random.Random(seed)
    for _ in range(count):
        yield mutated(data, random_)


def mutated_at(data: bytes, seed: int) -> bytes:
    """One changed input, the same for the same seed."""
    return mutated(data, random.Random(seed))


def mutated(data: bytes, random_: random.Random) -> bytes:
    """One changed input."""
    spans = list(_json_spans(data))
    if spans and random_.random() < 0.7:
        start, end, told = random_.choice(spans)
        for _ in range(random_.randint(1, 3)):
            told = _changed(told, random_)
        return data[:start] + json.dumps(told).encode() + data[end:]
    for _ in range(random_.randint(1, 4)):
        data = _changed_bytes(data, random_)
    return data


def _json_spans(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Where an object or a list stands in the bytes: from a bracket to the end of its line or to a NUL."""
    decoder = json.JSONDecoder()
    text = data.decode("latin-1")
    at = 0
    while True:
        starts = [place for place in (text.find('{"', at), text.find("[", at)) if place >= 0]
        if not starts:
            return
        start = min(starts)
        try:
            told, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
            continue
        if end - start > 2 and isinstance(told, dict | list):
            yield start, end, told
        at = end


def _changed(told: Any, random_: random.Random) -> Any:
    """The same with one value replaced, dropped or doubled."""
    places: list[tuple[Any, Any]] = []
    waiting = [told] if isinstance(told, dict | list) else []
    while waiting:
        part = waiting.pop()
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        for key in keys:
            places.append((part, key))
            if isinstance(part[key], dict | list):
                waiting.append(part[key])
    if not places:
        return random_.choice(NASTY)
    if not isinstance(told, dict | list):
        return random_.choice(NASTY)
    told_again = json.loads(json.dumps(told))  # not the one that others share
    path_of = {id(part): path for path, part in _walk(told)}
    part, key = random_.choice(places)
    mine = told_again
    for step in path_of[id(part)]:
        mine = mine[step]
    _change_at(mine, key, random_)
    return told_again


def _walk(told: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, told
    for key in told if isinstance(told, dict) else range(len(told)):
        if isinstance(told[key], dict | list):
            yield from _walk(told[key], (*path, key))


def _change_at(part: Any, key: Any, random_: random.Random) -> None:
    value, how = part[key], random_.randrange(6)
    if how == 0:
        del part[key]
    elif how == 1 and isinstance(part, list):
        part.insert(key, value)
    elif how == 2 and isinstance(part, list):
        other = random_.randrange(len(part))
        part[key], part[other] = part[other], part[key]
    elif how <= 4 and type(value) is int:
        part[key] = value + random_.choice((-64, -8, -1, 1, 8, 64, 4096, value, -value))
    else:
        part[key] = random_.choice(NASTY)


def _changed_bytes(data: bytes, random_: random.Random) -> bytes:
    if not data:
        return random_.randbytes(8)
    at, how = random_.randrange(len(data)), random_.randrange(6)
    if how == 0:
        return data[:at] + bytes([data[at] ^ 1 << random_.randrange(8)]) + data[at + 1 :]
    if how == 1:
        return data[:at]
    if how == 2:
        return data[:at] + random_.randbytes(random_.randint(1, 8)) + data[at:]
    if how == 3:
        width = random_.choice((1, 2, 4, 8))
        number = random_.choice(NASTY_NUMBERS) & (1 << 8 * width) - 1
        return data[:at] + number.to_bytes(width, "little") + data[at + width :]
    if how == 4:
        end = min(len(data), at + random_.randint(1, 64))
        return data[:at] + data[end:]
    start = random_.randrange(len(data))
    piece = data[start : start + random_.randint(1, 64)]
    return data[:at] + piece + data[at + len(piece) :]
