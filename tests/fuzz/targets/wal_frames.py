"""Segments of a write-ahead log (engine/wal_frames.py, wal_chain.py): as they are, and with every checksum right.

An input is a sequence of frames, each a head of 32 bytes (kind, length, position, synced, and whether its sum is right)
and its payload; or a segment as it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

from lsmstate.engine.wal import WriteAheadLog
from lsmstate.engine.wal_chain import Segments
from lsmstate.engine.wal_frames import BEGIN, PREAMBLE, Seeds, encode
from lsmstate.manifest import names
from lsmstate.manifest.version import LogMark
from tests.fuzz.kit import STORE, documented, mounted

DIRECTORY = "/state/wal"
_FRAME = struct.Struct("<IIQQQ")
_FRAMES_MAX = 64


def seeds() -> Iterator[tuple[str, bytes]]:
    fs = mounted({f"{DIRECTORY}/x": b""})
    log = WriteAheadLog(fs, DIRECTORY, STORE, "fuzz")
    log.begin()
    for n in range(3):
        log.sync(log.append(16 + n, [b"payload" * n]))
    log.close()
    yield "segment", fs.read(log._segments.path(1), 1 << 20)
    begin = json.dumps({"log": STORE, "attempt": "fuzz", "previous": 0, "carried": 0}).encode()
    yield "frames", _frame(BEGIN, begin, 0, 0) + _frame(16, b"abcdefgh", 0, 0) + _frame(17, b"12345678", 48, 48)
    carried = json.dumps({"log": STORE, "attempt": "fuzz", "previous": 0, "carried": 48}).encode()
    yield "carried", _frame(BEGIN, carried, 0, 0) + _frame(16 | 1 << 31, b"abcdefgh", 0, 0)


def _frame(kind: int, payload: bytes, position: int, synced: int) -> bytes:
    return _FRAME.pack(kind, len(payload), position, synced, 1) + payload


def run(data: bytes) -> None:
    _read(data)
    _read(_sealed(data))


def _sealed(data: bytes) -> bytes:
    seeds_, segment, at = Seeds.of(STORE, names.log(1)), PREAMBLE, 0
    for _ in range(_FRAMES_MAX):
        if at + _FRAME.size > len(data):
            break
        kind, length, position, synced, sound = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        at += _FRAME.size + len(payload)
        parts, _ = encode(seeds_, len(segment), kind & 0x7FFFFFFF, [payload], position, synced, carried=kind >> 31 == 1)
        frame = b"".join(parts)
        segment += frame if sound else frame[:-1] + b"\xff"
    return segment + data[at:]


def _read(segment: bytes) -> None:
    files = {f"{DIRECTORY}/{names.log(1)}": segment}
    for start in (None, LogMark(1, 0), LogMark(1, 48)):
        with documented():
            segments = Segments(mounted(files), DIRECTORY, STORE)
            chain = segments.chain(1 << 62, start)
            for _, frame in segments.records(chain.links, chain.end, 0 if start is None else start.position):
                assert frame.end >= frame.position
        with documented():
            log = WriteAheadLog(mounted(files), DIRECTORY, STORE, "next")
            log.begin(start)
            log.sync(log.append(16, [b"more"]))
            assert list(log.replay(0))[-1].payload == b"more"
            log.close()
