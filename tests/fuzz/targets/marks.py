"""Marks (join/marks.py): rows of a state that hold sets of ids. An input is one mark row and, behind it, its bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lsmstate.join.idset import IdSet
from lsmstate.join.marks import _SCHEMA, _decoded, _encoded
from tests.fuzz.kit import documented

_HEAD = struct.Struct("<qqqHH")  # epoch, count, first, bytes of steps, bytes of later and 1, or 0 for none


def seeds() -> Iterator[tuple[str, bytes]]:
    dense = np.arange(100, 120, dtype=np.uint64)
    for name, ids, epochs in (
        ("dense", dense, np.full(20, 3)),
        ("epochs", dense, np.arange(20) + 3),
        ("far", np.array([1, 70_000, 1 << 40], np.uint64), np.array([9, 5, 7])),
        ("one", np.array([5], np.uint64), np.array([1])),
    ):
        row = _encoded(0, 9, ids, epochs)
        later = row["later"]
        sizes = len(row["steps"]), 0 if later is None else len(later) + 1
        yield name, _HEAD.pack(row["epoch"], row["count"], row["first"], *sizes) + row["steps"] + (later or b"")


def run(data: bytes) -> None:
    epoch, count, first, steps, later = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    rest = data[_HEAD.size :]
    row = {
        "unit": 0,
        "ts": 9,
        "epoch": epoch,
        "count": count,
        "first": first,
        "steps": rest[:steps],
        "later": rest[steps : steps + later - 1] if later else None,
    }
    with documented():
        for ids, epochs in _decoded([pa.RecordBatch.from_pylist([row], schema=_SCHEMA)]):
            assert len(ids) == len(epochs) == count
            known = IdSet()
            known.add(ids)
            assert known.has(ids).all()
