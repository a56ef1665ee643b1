"""A source that can replay, made of one that cannot: every batch is logged, durably, before it is handed out.

    source = LoggedSource(socket_source, "state/log-of-socket")

Its offsets are a position in the log, and the offsets of the source below, if that has any. Opened at them it gives
what was logged after that position, and then goes on with the source, which is opened after the last batch that was
logged. `forget` drops what a committed checkpoint has passed. Rows that the source had given up and that were not
logged when the process died are lost, as they would be without a log.

A log belongs to one job: opening it ends whoever had it before with `FencedError`. Threading: one thread.
"""

from __future__ import annotations

import json
import os
import os.path
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import xxhash

from iopool import FileSystem, LocalFileSystem, make_dirs
from lsmstate.checkpoint.connect.source import Source, whole_number
from lsmstate.engine.wal import WriteAheadLog
from lsmstate.engine.wal_frames import Record
from lsmstate.errors import CheckpointError, CorruptionError, SchemaError, SnapshotExpired, StoreClosedError
from lsmstate.manifest import names
from lsmstate.sound import check_batch

_BATCH = 32  # the kind of its records
POSITION = "wal"
_BELOW = "source."  # before the names of the offsets of the source below
_LENGTH = struct.Struct("<Q")
_OFFSETS_MAX = 1 << 20
_ROLL_BYTES = 1 << 20  # what may be left of a log that a checkpoint has passed


class LoggedSource:
    """A source whose rows can be read again."""

    def __init__(self, source: Source, directory: str | os.PathLike[str], fs: FileSystem | None = None) -> None:
        self._source = source
        self._fs = fs or LocalFileSystem()
        self._directory = os.fspath(directory)
        self._log: WriteAheadLog | None = None
        self._replay: Iterator[Record] | None = None
        self._position = 0
        self._below: dict[str, str] = {}
        self._waiting: tuple[pa.RecordBatch, dict[str, str]] | None = None  # the source gave it, and no log took it yet
        self._rolled_at = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of the source below."""
        schema: pa.Schema = self._source.schema
        return schema

    @property
    def ended(self) -> bool:
        """Whether the log was given and the source below has ended."""
        return self._replay is None and self._waiting is None and self._source.ended

    def open(self, offsets: Mapping[str, str] | None) -> None:
        """Goes on strictly after these offsets; None: from the beginning of the log, if it still has that."""
        after = whole_number("LoggedSource", offsets, POSITION) if offsets else 0
        below = {name[len(_BELOW) :]: told for name, told in (offsets or {}).items() if name.startswith(_BELOW)}
        self.close()
        path = self._fs.resolve(self._directory)
        make_dirs(self._fs, path)
        told = xxhash.xxh3_64_hexdigest(bytes(self.schema.serialize()))
        log = WriteAheadLog(self._fs, path, f"source-{told}", names.new_attempt())
        log.begin()
        try:
            self._replay = log.replay(after)
        except (SnapshotExpired, CorruptionError) as error:
            log.close()
            raise CheckpointError(f"LoggedSource: cannot go on after position {after}: {error}") from error
        self._log, self._position, self._below, self._rolled_at = log, after, below, log.position

    def read(self) -> pa.RecordBatch | None:
        """The next rows, which are in the log by then; None if there are none now."""
        log = self._opened()
        if self._replay is not None:
            record = next(self._replay, None)
            if record is not None:
                batch, self._below = _decoded(record, self.schema)
                self._position = record.position
                return batch
            self._replay = None
            self._source.open(self._below or None)
        if self._waiting is None:
            batch = self._source.read()
            if batch is None:
                return None
            self._waiting = batch, dict(self._source.offsets())
        batch, below = self._waiting
        position = log.append(_BATCH, _encoded(batch, self.schema, below))
        self._waiting = None
        log.sync(position)
        self._position, self._below = position, below
        return batch

    def offsets(self) -> dict[str, str]:
        """The position in the log after the last batch, and where the source below stood."""
        return {POSITION: str(self._position), **{f"{_BELOW}{name}": told for name, told in self._below.items()}}

    def forget(self, offsets: Mapping[str, str]) -> None:
        """Drops from the log what these offsets have passed: those of a checkpoint that is committed."""
        log = self._opened()
        position = whole_number("LoggedSource", offsets, POSITION)
        log.truncate_before(position)
        if log.written - self._rolled_at >= _ROLL_BYTES:
            log.roll()
            self._rolled_at = log.position

    def close(self) -> None:
        """Closes the log and the source below."""
        log, self._log, self._replay, self._waiting = self._log, None, None, None
        if log is not None:
            log.close()
            self._source.close()

    def _opened(self) -> WriteAheadLog:
        if self._log is None:
            raise StoreClosedError("LoggedSource: not open; call open first")
        return self._log


def _encoded(batch: pa.RecordBatch, schema: pa.Schema, below: dict[str, str]) -> list[Any]:
    """A batch as a record: the offsets of the source below, and an Arrow stream."""
    if not batch.schema.equals(schema):
        raise SchemaError("LoggedSource: the source gave a batch with other columns than its schema says")
    told = json.dumps(below).encode()
    if len(told) > _OFFSETS_MAX:
        raise ValueError(f"LoggedSource: the offsets of the source have {len(told)} bytes, more than {_OFFSETS_MAX}")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(batch)
    padding = bytes(-len(told) % 8)
    return [_LENGTH.pack(len(told)), told, padding, memoryview(sink.getvalue())]


def _decoded(record: Record, schema: pa.Schema) -> tuple[pa.RecordBatch, dict[str, str]]:
    """What `_encoded` was given. The checksum is right by now; what it covers is checked all the same."""
    try:
        if record.kind != _BATCH:
            raise ValueError("a record of another kind")
        (length,) = _LENGTH.unpack_from(record.payload)
        if length > min(_OFFSETS_MAX, len(record.payload) - _LENGTH.size):
            raise ValueError("a length beyond the end")
        at = _LENGTH.size + length
        below = json.loads(record.payload[_LENGTH.size : at])
        if not isinstance(below, dict) or not all(isinstance(text, str) for text in below.values()):
            raise TypeError("not offsets")
        with pa.ipc.open_stream(pa.py_buffer(memoryview(record.payload)[at + -length % 8 :])) as stream:
            if not stream.schema.equals(schema):
                raise ValueError("other columns")
            (batch,) = stream
        check_batch(batch)
    except (pa.ArrowException, struct.error, ValueError, TypeError, OSError, RecursionError) as error:
        raise record.damaged("a batch of the source", type(error).__name__) from error
    return batch, below
