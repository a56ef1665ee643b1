"""How the values of a type lie in memory: which buffers Arrow gives them, and how wide they are.

Worked out once for every column of a side, because asking Arrow costs more than reading a few values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

_PLAIN = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}


@dataclass(frozen=True, slots=True)
class Layout:
    """One type. `width` is that of a value in bytes; of an offset where values differ in length; 0 for bits."""

    kind: pa.DataType
    varying: bool
    bits: bool
    width: int
    buffers: int  # of a column, its validity included
    plain: np.dtype[Any] | None  # numbers that numpy can gather instead of Arrow
    offsets: np.dtype[Any]  # where values differ in length
    code: Literal["i", "q"]  # the same for a memoryview

    def least_bytes(self, rows: int) -> int:
        """What the buffer after the validity holds at least: values, bits or offsets."""
        if self.bits:
            return -(-rows // 8)
        return (rows + self.varying) * self.width


def layout_of(kind: pa.DataType) -> Layout:
    """The layout of a type. Requires: one that `is_payload_type` accepts."""
    varying, bits = is_varying(kind), bool(pt.is_boolean(kind))
    wide = pt.is_large_string(kind) or pt.is_large_binary(kind)
    offsets = np.dtype(np.int64 if wide else np.int32)
    width = offsets.itemsize if varying else 0 if bits else kind.bit_width // 8
    plain = None if varying else _PLAIN.get(width)
    return Layout(kind, varying, bits, width, 3 if varying else 2, plain, offsets, "q" if wide else "i")


def is_payload_type(kind: pa.DataType) -> bool:
    """Whether the engine stores this type: those with a fixed width, and plain strings and binaries."""
    if pt.is_dictionary(kind) or pt.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return False
    return (
        is_varying(kind)
        or pt.is_boolean(kind)
        or (pt.is_primitive(kind) or pt.is_decimal(kind) or is_fixed_binary(kind))
    )


def is_varying(kind: pa.DataType) -> bool:
    """Whether values differ in length: an offsets buffer and a data buffer."""
    return bool(pt.is_string(kind) or pt.is_binary(kind) or pt.is_large_string(kind) or pt.is_large_binary(kind))


def is_fixed_binary(kind: pa.DataType) -> bool:
    """Whether it is a binary of one length above zero."""
    return bool(pt.is_fixed_size_binary(kind)) and kind.byte_width > 0
