"""How the values of a type lie in memory: which buffers Arrow gives them, and how wide they are.

Worked out once for every column of a side, because asking Arrow costs more than reading a few values. A type whose
values lie in two or three buffers is **flat**; all others are **trees**: of a node's own buffers, and its children.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

DEPTH_MAX = 32
_UNSHOWN = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)  # intervals without a form in Python
VALUE_BYTES_MAX = 64 << 10  # of a value, by its type alone: a NULL takes as much
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
    tree: bool = False
    children: tuple[Layout, ...] = ()  # of a tree
    each: int | None = None  # rows of the child for each row, where all have as many

    def least_bytes(self, rows: int) -> int:
        """What the buffer after the validity holds at least: values, bits or offsets."""
        if self.bits:
            return -(-rows // 8)
        return (rows + self.varying) * self.width

    @property
    def is_bare(self) -> bool:
        """Whether its rows take no bytes but their validity."""
        return self.tree and not self.varying and not (self.children and self.each != 0)


def layout_of(kind: pa.DataType) -> Layout:
    """The layout of a type. Requires: one that `is_payload_type` accepts."""
    if is_tree(kind):
        return _tree_of(kind)
    varying, bits = is_varying(kind), bool(pt.is_boolean(kind))
    wide = pt.is_large_string(kind) or pt.is_large_binary(kind)
    offsets = np.dtype(np.int64 if wide else np.int32)
    width = offsets.itemsize if varying else 0 if bits else kind.bit_width // 8
    plain = None if varying else _PLAIN.get(width)
    return Layout(kind, varying, bits, width, 3 if varying else 2, plain, offsets, "q" if wide else "i")


def _tree_of(kind: pa.DataType) -> Layout:
    is_list = is_listed(kind)
    wide = bool(pt.is_large_list(kind))
    offsets = np.dtype(np.int64 if wide else np.int32)
    each = kind.list_size if pt.is_fixed_size_list(kind) else None
    children = tuple(layout_of(child) for child in children_of(kind))
    width = offsets.itemsize if is_list else 0
    code: Literal["i", "q"] = "q" if wide else "i"
    return Layout(kind, is_list, False, width, 2 if is_list else 1, None, offsets, code, True, children, each)


def is_payload_type(kind: pa.DataType, depth: int = 0) -> bool:
    """Whether the engine stores this type: every one that has values of its own, nested at most DEPTH_MAX deep.

    Encodings of another type, extension types and unions are none.
    """
    if isinstance(kind, pa.BaseExtensionType) or depth > DEPTH_MAX:
        return False
    if pt.is_struct(kind) or is_listed(kind) or pt.is_fixed_size_list(kind):
        if pt.is_fixed_size_list(kind) and kind.list_size < 0:
            return False
        return all(is_payload_type(child, depth + 1) for child in children_of(kind))
    if pt.is_dictionary(kind) or pt.is_nested(kind) or kind.id in _UNSHOWN:
        return False
    return bool(
        pt.is_null(kind)
        or is_varying(kind)
        or pt.is_boolean(kind)
        or (pt.is_primitive(kind) or pt.is_decimal(kind) or (pt.is_fixed_size_binary(kind) and kind.byte_width >= 0))
    )


def value_bytes(kind: pa.DataType) -> int:
    """What one value takes at least, also if it is NULL: lengths that are part of a type are there in any case."""
    if pt.is_fixed_size_list(kind):
        return int(kind.list_size) * value_bytes(kind.value_type)
    if pt.is_struct(kind):
        return sum(map(value_bytes, children_of(kind)))
    if pt.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    if is_tree(kind) or is_varying(kind) or pt.is_boolean(kind):
        return 8
    return int(kind.bit_width) // 8


def is_varying(kind: pa.DataType) -> bool:
    """Whether values differ in length: an offsets buffer and a data buffer."""
    return bool(pt.is_string(kind) or pt.is_binary(kind) or pt.is_large_string(kind) or pt.is_large_binary(kind))


def is_listed(kind: pa.DataType) -> bool:
    """Whether a value is a range of the rows of a child: lists and maps."""
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_map(kind))


def is_tree(kind: pa.DataType) -> bool:
    """Whether a column of this type is a node with children, or has no values at all."""
    return bool(
        pt.is_null(kind)
        or pt.is_struct(kind)
        or is_listed(kind)
        or pt.is_fixed_size_list(kind)
        or (pt.is_fixed_size_binary(kind) and kind.byte_width == 0)
    )


def children_of(kind: pa.DataType) -> list[pa.DataType]:
    """The types of the children, as Arrow lays them out: a map has one, a struct of key and value."""
    if pt.is_map(kind):
        return [pa.struct([kind.key_field, kind.item_field])]
    return [kind.field(number).type for number in range(kind.num_fields)] if pt.is_nested(kind) else []
