"""Rows of a column in another order: by the compiled loops where they can, else by numpy or Arrow.

This module owns that choice. Threading: any thread; it holds no state, and the loops release the GIL.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iopool import Bytes
from lsmstate.layout import Layout, is_payload_type, layout_of
from lsmstate.native import kernel

D = TypeVar("D", bound=np.generic)
Rows = npt.NDArray[np.signedinteger] | npt.NDArray[np.uint32]
_FEW = 64  # rows; below, to ask Arrow for buffers costs more than it saves
_SPARE = 32  # bytes that the loop may write behind the last string


def taken(layout: Layout | None, array: pa.Array, rows: Rows) -> pa.Array:
    """The values of some rows, in the order given. Requires: there are such rows. Without a layout Arrow does it."""
    if layout is None or layout.tree or layout.bits or array.null_count or len(rows) < _FEW:
        return _by_arrow(array, rows)
    if kernel is None and layout.plain is None:
        return _by_arrow(array, rows)
    first, count = array.offset, len(array) + layout.varying
    _, values, *data = array.buffers()
    here = memoryview(values)[first * layout.width : (first + count) * layout.width]
    if layout.varying:
        return _strings(layout, array, here, data[0] or b"", rows)
    if kernel is None:
        picked = np.frombuffer(here, layout.plain)[rows]
    else:
        picked = np.empty(len(rows) * layout.width, np.uint8)
        kernel.take_fixed(here, layout.width, rows, rows.itemsize, picked)
    return pa.Array.from_buffers(layout.kind, len(rows), [None, pa.py_buffer(picked)], 0)


def picked(values: npt.NDArray[D], rows: npt.NDArray[np.int64]) -> npt.NDArray[D]:
    """The numbers of some rows, in the order given. Requires: there are such rows."""
    if kernel is None or len(rows) < _FEW or not values.flags.c_contiguous:
        return values[rows]
    out = np.empty(len(rows), values.dtype)
    kernel.take_fixed(values, values.itemsize, rows, rows.itemsize, out)
    return out


def layout_to_take(kind: pa.DataType) -> Layout | None:
    """What `taken` wants to know of a type."""
    return layout_of(kind) if is_payload_type(kind) else None


def _strings(layout: Layout, array: pa.Array, offsets: memoryview, data: Bytes, rows: Rows) -> pa.Array:
    assert kernel is not None
    ends = np.empty(len(rows) + 1, layout.offsets)
    size = kernel.take_offsets(offsets, layout.width, memoryview(data).nbytes, rows, rows.itemsize, ends)
    if size < 0:
        return _by_arrow(array, rows)  # which says that there is too much for its offsets
    out = np.empty(size + _SPARE, np.uint8)
    kernel.take_bytes(offsets, layout.width, data, rows, rows.itemsize, out)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(out[:size])]
    return pa.Array.from_buffers(layout.kind, len(rows), buffers, 0)


def _by_arrow(array: pa.Array, rows: Rows) -> pa.Array:
    return pc.take(array, pa.array(rows), boundscheck=False)
