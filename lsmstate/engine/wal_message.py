"""A message of Arrow out of a record: refused if reading it could take more memory than the record.

Arrow verifies the structure of a message, but takes its word for how large a compressed buffer becomes. Records are
never written compressed, so one that says it is was not written by lsmstate. Pure functions.
"""

from __future__ import annotations

import struct

import pyarrow as pa

_HEADER, _COMPRESSION = 2, 3  # the fields of Message and of RecordBatch in Arrow's Message.fbs
_U16, _I32 = struct.Struct("<H"), struct.Struct("<i")


def read_batch(data: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a message. Raises ValueError, struct.error or ArrowException if it is none that a record holds."""
    try:
        message = pa.ipc.read_message(pa.py_buffer(data))
        if message.type != "record batch":
            raise ValueError("a message without rows")
        if _is_compressed(memoryview(message.metadata)):
            raise ValueError("compressed rows")
        return pa.ipc.read_record_batch(message, schema)
    except (OSError, EOFError) as error:  # Arrow's own words for bytes that are no message
        raise ValueError("no message") from error


def _is_compressed(metadata: memoryview) -> bool:
    table = _I32.unpack_from(metadata, 0)[0]
    where = _field(metadata, table, _HEADER)
    if where is None:
        raise ValueError("a message without rows")
    return _field(metadata, where + _I32.unpack_from(metadata, where)[0], _COMPRESSION) is not None


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Where a field of a table lies; None if it is not there. Requires: verified metadata, as Arrow gives them."""
    entries = table - _I32.unpack_from(metadata, table)[0]
    at = 4 + 2 * number
    if at + 2 > _U16.unpack_from(metadata, entries)[0]:
        return None
    offset: int = _U16.unpack_from(metadata, entries + at)[0]
    return table + offset if offset else None
