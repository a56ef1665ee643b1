"""A parquet file that grows: rows in, bytes out to iopool, memory bounded by one row group.

Threading: belongs to one thread. A draft whose write failed must be abandoned: what was encoded is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from iopool import FileSystem
from lsmstate.errors import SchemaError

_GROUP_ROWS = 128 << 10
_GROUP_BYTES = 16 << 20
_READ_ROWS = 16 << 10
_BUFFER_BYTES = 1 << 20
_OPTIONS: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}


class ParquetDraft:
    """A new file that takes rows until it is finished."""

    def __init__(self, fs: FileSystem, path: str, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema
        self._file = _Stream(fs, path)
        self._writer = pq.ParquetWriter(self._file, schema, **_OPTIONS)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes rows; writes once there are enough for a row group."""
        if batch.get_total_buffer_size() > 2 * batch.nbytes + 4096:  # a slice would keep all that it was cut out of
            batch = batch.take(pa.array(np.arange(batch.num_rows)))
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._write_group()

    def finish(self) -> None:
        """Writes the rest, and makes the file durable; its name is not yet."""
        self._write_group()
        self._writer.close()
        self._file.finish()

    def discard(self) -> None:
        """Closes the file as it is."""
        self._waiting = []
        self._file.discard()

    def _write_group(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting, self._schema)
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
            self._writer.write_table(rows, _GROUP_ROWS)


def read_draft(fs: FileSystem, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a finished draft, in bounded batches."""
    with pq.ParquetFile(pa.BufferReader(pa.py_buffer(fs.map(path)))) as file:
        yield from file.iter_batches(_READ_ROWS, use_threads=False)


class _Stream:
    """A file of iopool as Arrow writes to it."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._file = fs.create(path)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        taken = bytes(data)  # Arrow uses its buffer again
        if self.closed:
            return len(taken)  # a writer that is thrown away still wants to write its footer
        self._waiting.append(taken)
        self._waiting_bytes += len(taken)
        if self._waiting_bytes >= _BUFFER_BYTES:
            self.flush()
        return len(taken)

    def flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting and not self.closed:
            self._file.write(waiting)

    def close(self) -> None:
        """Arrow is done; `finish` or `discard` ends it."""

    def finish(self) -> None:
        try:
            self.flush()
            self._file.sync()
        finally:
            self.closed = True
            self._file.close()

    def discard(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.close()


def check_parquet_can(where: str, schema: pa.Schema) -> None:
    """Raises SchemaError unless parquet can hold these columns."""
    if not len(schema) or len(set(schema.names)) != len(schema):
        raise SchemaError(f"{where}: at least one column is needed, and no two of one name")
    try:
        with pq.ParquetWriter(pa.BufferOutputStream(), schema, **_OPTIONS) as writer:
            writer.write_table(schema.empty_table())
    except pa.ArrowException as error:
        raise SchemaError(f"{where}: parquet cannot hold these columns, cast them before: {error}") from None
