"""Frames: the bytes of a write-ahead log's segment, written and read. FORMAT.md beside this file describes them.

A frame carries the position at which it begins, what its writer knew to be synced when it wrote the frame, and a
checksum that is bound to the name of the log and of the segment and to the offset. Positions count the bytes of records
over all segments; what a segment says of itself takes no position. Pure functions, no state.

Where reading stops at bytes that are no frame, the question is whether a crash can have left them. What a later frame
knew to be synced cannot be lost by a crash: then it is damage. Anything else was never acknowledged: a torn tail.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from iopool import Bytes
from lsmstate.errors import CorruptionError, FormatVersionError

VERSION = 1
BEGIN, END = 1, 2  # a segment about itself; records have kinds from KIND_MIN
KIND_MIN, KIND_MAX = 16, 255
RECORD_MAX_BYTES = 1 << 30
POSITION_MAX = 1 << 62
CARRIED = 1 << 31  # a flag of the kind: copied from the segment before, which may lose it

_FAMILY = b"lsmstate log "
PREAMBLE = b"%s%d\n" % (_FAMILY, VERSION) + b"\0"
_MAGIC = b"\xf5\x1cWl"
_HEAD = struct.Struct("<4sIQQQ")  # magic, kind, length, position, synced
_SUM = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size + _SUM.size
_ABOUT_MAX = 4096
_TAIL_MAX_BYTES = 16 << 30  # what was not synced is a few records of those who wait
_PIECE_BYTES = 1 << 20
_PATIENCE = 16  # how many times its own size a damaged tail may cost to search


@dataclass(frozen=True, slots=True)
class Record:
    """What was appended, and the position that it ended at; the file and the offset are for messages."""

    kind: int
    payload: bytes
    position: int
    path: str
    offset: int

    def damaged(self, expected: object, got: object) -> CorruptionError:
        """The error for a record that is whole and yet cannot be what was written."""
        return CorruptionError(self.path, self.offset, expected, got)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a segment. `position` is where it begins, `end` where the next one does; `offset` is in the file."""

    kind: int
    payload: bytes
    position: int
    end: int
    synced: int
    carried: bool
    offset: int
    size_bytes: int

    def record(self, path: str) -> Record:
        """As its reader gets it."""
        return Record(self.kind, self.payload, self.end, path, self.offset)


@dataclass(frozen=True, slots=True)
class Seeds:
    """What binds frames to their file: what a segment says of itself to its name, its records to the log's name too."""

    about: int
    records: int

    @classmethod
    def of(cls, log_id: str, name: str) -> Seeds:
        """The seeds of a segment."""
        return cls(xxhash.xxh3_64_intdigest(name.encode()), xxhash.xxh3_64_intdigest(f"{log_id} {name}".encode()))

    def at(self, kind: int, offset: int) -> int:
        """The seed of a frame."""
        return ((self.about if kind in (BEGIN, END) else self.records) + offset) & (1 << 64) - 1


def encode(
    seeds: Seeds, offset: int, kind: int, views: Sequence[Bytes], position: int, synced: int, *, carried: bool = False
) -> tuple[list[Bytes], int]:
    """A frame as views to write, and its size in bytes. Raises ValueError if it would be too large."""
    parts = [memoryview(view).cast("B") for view in views]
    length = sum(len(part) for part in parts)
    if length > RECORD_MAX_BYTES:
        raise ValueError(
            f"a record of the log has at most {RECORD_MAX_BYTES} bytes, not {length}: write smaller batches"
        )
    head = _HEAD.pack(_MAGIC, kind | CARRIED * carried, length, position, synced)
    parts.append(memoryview(bytes(-length % 8)))
    digest = xxhash.xxh3_64(head, seed=seeds.at(kind, offset))
    for part in parts:
        digest.update(part)
    return [head, _SUM.pack(digest.intdigest()), *parts], HEAD_BYTES + length + len(parts[-1])


def encode_about(seeds: Seeds, offset: int, kind: int, about: dict[str, Any], position: int) -> list[Bytes]:
    """The frame in which a segment tells of itself; all up to its position is synced."""
    return encode(seeds, offset, kind, [json.dumps(about, sort_keys=True).encode()], position, position)[0]


def decode_about(path: str, frame: Frame) -> dict[str, Any]:
    """What a segment tells of itself."""
    try:
        told = json.loads(frame.payload)
        if not isinstance(told, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptionError(path, frame.offset, "what a log tells of itself", type(error).__name__) from error
    return told


def read_frames(path: str, data: memoryview, seeds: Seeds) -> Iterator[Frame]:
    """The frames of a segment, the first telling of it, up to what a crash has torn. Raises CorruptionError for damage.

    A segment whose beginning was never synced gives nothing."""
    if bytes(data[: len(PREAMBLE)]) != PREAMBLE:
        _check_version(path, data)
        _check_tail(path, data, seeds, len(PREAMBLE), None)
        return
    offset, position = len(PREAMBLE), None
    while (frame := _frame_at(data, seeds, offset)) is not None:
        if position is None and frame.kind != BEGIN:
            break
        if position is not None and (frame.position != position or frame.kind == BEGIN):
            break
        yield frame
        offset, position = offset + frame.size_bytes, frame.end
    _check_tail(path, data, seeds, offset, position)


def _frame_at(data: memoryview, seeds: Seeds, offset: int) -> Frame | None:
    """The frame at an offset; None unless it is as it was written. Lengths are checked before anything is read."""
    left = len(data) - offset - HEAD_BYTES
    if left < 0:
        return None
    magic, flags, length, position, synced = _HEAD.unpack_from(data, offset)
    padded = length + -length % 8
    kind, carried = flags & ~CARRIED, bool(flags & CARRIED)
    if magic != _MAGIC or padded > left or length > RECORD_MAX_BYTES or position > POSITION_MAX:
        return None
    about = kind in (BEGIN, END)
    if not (about or KIND_MIN <= kind <= KIND_MAX) or (about and length > _ABOUT_MAX):
        return None
    at = offset + HEAD_BYTES
    body = bytes(data[at : at + padded])  # a copy: what is checked is what will be parsed
    digest = xxhash.xxh3_64(data[offset : offset + _HEAD.size], seed=seeds.at(kind, offset))
    digest.update(body)
    if digest.intdigest() != _SUM.unpack_from(data, offset + _HEAD.size)[0]:
        return None
    size = HEAD_BYTES + padded
    end = position if about else position + size
    return Frame(kind, body[:length] if length != padded else body, position, end, synced, carried, offset, size)


def _check_tail(path: str, data: memoryview, seeds: Seeds, offset: int, position: int | None) -> None:
    """Raises CorruptionError if a frame behind `offset` knows that what was to stand there was synced.

    `position` is None where not even the beginning of the segment can be read: any record of its own needed that."""
    if len(data) - offset > _TAIL_MAX_BYTES:
        raise CorruptionError(path, offset, "records, or what a crash leaves", f"{len(data) - offset} other bytes")
    budget = _PATIENCE * (len(data) - offset) + (1 << 20)
    next_at = offset
    for at in _beginnings(data, offset):
        if at < next_at:
            continue  # inside of a frame that is whole
        frame = _frame_at(data, seeds, at)
        own = frame is not None and not frame.carried and frame.kind != BEGIN
        if frame is not None and own and (position is None or frame.synced > position):
            raise CorruptionError(path, offset, "a record that was synced", "other bytes")
        if at + HEAD_BYTES <= len(data):
            length = _HEAD.unpack_from(data, at)[2]
            budget -= min(length, len(data) - offset) + HEAD_BYTES
        if budget < 0:
            raise CorruptionError(path, offset, "records, or what a crash leaves", "too many beginnings of records")
        next_at = at + (frame.size_bytes if frame is not None else 1)


def _beginnings(data: memoryview, offset: int) -> Iterator[int]:
    """Where bytes that begin a frame stand, from an offset on. Copies a piece at a time, however long the file is."""
    for start in range(offset, len(data), _PIECE_BYTES):
        piece = bytes(data[start : start + _PIECE_BYTES + len(_MAGIC) - 1])
        at = piece.find(_MAGIC)
        while at >= 0:
            yield start + at
            at = piece.find(_MAGIC, at + 1)


def _check_version(path: str, data: memoryview) -> None:
    """Raises FormatVersionError if another version of lsmstate wrote this."""
    start = bytes(data[:32])
    if start.startswith(_FAMILY):
        told = start[len(_FAMILY) :].split(b"\n")[0]
        if told.isdigit() and len(told) < 6 and int(told) != VERSION:
            raise FormatVersionError(path, int(told), VERSION)
