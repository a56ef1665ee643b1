"""Records in flight: what an unaligned checkpoint found before its barrier, as bytes, and back.

A record is a kind and its body: rows as an Arrow stream, a watermark as eight bytes. The bytes come out of a manifest
or its sidecar, whose checksum has been found right.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa

from lsmstate.checkpoint.runtime.inbox import Item, Mark, Rows
from lsmstate.errors import CorruptionError

_ROWS, _MARK = b"R", b"W"
_TIME = struct.Struct(">q")


def pack(items: Iterable[Item]) -> list[bytes]:
    """Rows and watermarks in their order; other items are of no use after a restart."""
    packed = []
    for item in items:
        if isinstance(item, Rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, item.batch.schema) as writer:
                writer.write_batch(item.batch)
            packed.append(_ROWS + sink.getvalue().to_pybytes())
        elif isinstance(item, Mark):
            packed.append(_MARK + _TIME.pack(item.watermark))
    return packed


def unpack(where: str, packed: Sequence[bytes]) -> list[Rows | Mark]:
    """What `pack` packed; `where` is told of damage."""
    items: list[Rows | Mark] = []
    for record in packed:
        kind, body = bytes(record[:1]), memoryview(record)[1:]
        try:
            if kind == _MARK:
                items.append(Mark(_TIME.unpack(body)[0]))
            elif kind == _ROWS:
                items += [Rows(batch) for batch in pa.ipc.open_stream(pa.py_buffer(body))]
            else:
                raise ValueError(f"of kind {kind!r}")
        except (ValueError, struct.error, pa.ArrowException) as error:
            raise CorruptionError(where, 0, "a record in flight", type(error).__name__) from error
    return items
