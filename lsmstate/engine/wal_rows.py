"""Writes as records of a log, and back: what `append`, `remove` and `advance_watermark` were given, and the next id.

Rows are Arrow IPC messages without their schema: it is the side's, whatever the bytes say. What comes from a log has a
right checksum by now, and is checked all the same: types, buffers, bounds. Pure functions.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from iopool import Bytes
from lsmstate.engine.intake import Batch, Rows, batches_of, decoded, read_rows
from lsmstate.engine.wal_frames import Record
from lsmstate.engine.wal_message import read_batch
from lsmstate.errors import CorruptionError, SchemaError
from lsmstate.keys import TS_MAX, TS_MIN
from lsmstate.schema import Side
from lsmstate.sound import check_batch

ROWS, REMOVAL, WATERMARK = 16, 17, 18
_ROWS = struct.Struct("<IIQ")  # side, parts, the first id
_LENGTH = struct.Struct("<Q")
_NOTE_MAX = 4096


@dataclass(frozen=True, slots=True)
class Removal:
    """A call of `remove`."""

    side: int
    start: int
    end: int
    next_id: int


def rows_record(side: int, kind: Side, batch: Batch, next_id: int) -> list[Bytes]:
    """The record of rows. Requires: a batch that `read_rows` takes."""
    picked = batch.select(kind.schema.names)
    if picked.schema.types != kind.schema.types:
        picked = decoded(picked, kind.schema)
    messages = [memoryview(part.serialize()) for part in batches_of(picked) if part.num_rows]
    views: list[Bytes] = [_ROWS.pack(side, len(messages), next_id)]
    for message in messages:
        views += [_LENGTH.pack(len(message)), message]
    return views


def rows_in(record: Record, sides: tuple[Side, ...]) -> tuple[int, list[Rows], int]:
    """The side, the rows and the first id of a record. Raises CorruptionError if it is none."""
    try:
        side, count, next_id = _ROWS.unpack_from(record.payload)
        kind, at = sides[side], _ROWS.size
        rows: list[Rows] = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(record.payload, at)
            at += _LENGTH.size
            if length > len(record.payload) - at:
                raise ValueError("a length beyond the end")
            part = read_batch(memoryview(record.payload)[at : at + length], kind.schema)
            check_batch(part)
            rows += read_rows(kind, part)
            at += length
        if at != len(record.payload):
            raise ValueError("more than was told")
    except (pa.ArrowException, SchemaError, struct.error, LookupError, ValueError, TypeError) as error:
        raise record.damaged("rows of a side", type(error).__name__) from error
    return side, rows, next_id


def removal_record(side: int, start: int, end: int, next_id: int) -> list[Bytes]:
    """The record of a removal."""
    return [json.dumps([side, start, end, next_id]).encode()]


def removal_in(record: Record, sides: tuple[Side, ...]) -> Removal:
    """The removal that a record tells."""
    removal = Removal(*_numbers(record, 4))
    if not (0 <= removal.side < len(sides) and TS_MIN <= removal.start < removal.end <= TS_MAX + 1):
        raise record.damaged("a removal", "one that cannot be")
    return removal


def watermark_record(ts: int) -> list[Bytes]:
    """The record of a watermark."""
    return [json.dumps([ts]).encode()]


def watermark_in(record: Record) -> int:
    """The watermark that a record tells."""
    (ts,) = _numbers(record, 1)
    if not TS_MIN <= ts <= TS_MAX:
        raise record.damaged("a watermark", "one that cannot be")
    return ts


def _numbers(record: Record, count: int) -> list[int]:
    told: Any = None
    if len(record.payload) <= _NOTE_MAX:
        try:
            told = json.loads(record.payload)
        except (ValueError, RecursionError) as error:
            raise record.damaged(f"{count} numbers", type(error).__name__) from error
    if not (isinstance(told, list) and len(told) == count and all(type(number) is int for number in told)):
        raise record.damaged(f"{count} numbers", "something else")
    return told


def unknown(record: Record) -> CorruptionError:
    """The error for a record of a kind that no write has."""
    return record.damaged("a write", f"a record of kind {record.kind}")
