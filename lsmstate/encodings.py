"""Encodings: ways of writing a column (dictionary, run ends, views), which are not types of their own.

The engine stores values. A side that is declared with an encoded type has the plain type of its values, and a batch may
bring its columns in any encoding. Names and nullability of what lies inside of lists and maps do not tell types apart
either. Extension types are none of our business: they are refused, their storage is not. Pure functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lsmstate.layout import DEPTH_MAX, is_listed


def plain_type(kind: pa.DataType, depth: int = 0) -> pa.DataType:
    """The type of the values, all the way down, without metadata."""
    if isinstance(kind, pa.BaseExtensionType) or depth > DEPTH_MAX:
        return kind  # refused by whoever asked
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return plain_type(kind.value_type, depth + 1)
    if pt.is_string_view(kind):
        return pa.string()
    if pt.is_binary_view(kind):
        return pa.binary()
    if pt.is_struct(kind):
        return pa.struct([_plain_field(field, depth) for field in kind])
    if pt.is_map(kind):
        key, item = _plain_field(kind.key_field, depth), _plain_field(kind.item_field, depth)
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if pt.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field, depth), kind.list_size) if kind.list_size >= 0 else kind
    if pt.is_large_list(kind) or pt.is_large_list_view(kind):
        return pa.large_list(_plain_field(kind.value_field, depth))
    if pt.is_list(kind) or pt.is_list_view(kind):
        return pa.list_(_plain_field(kind.value_field, depth))
    return kind


def _plain_field(field: pa.Field, depth: int) -> pa.Field:
    return pa.field(field.name, plain_type(field.type, depth + 1), field.nullable)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the values, without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type), field.nullable) for field in schema])


def means(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of the one type are values of the other, however they are written. Requires: a plain `wanted`."""
    return bool(given == wanted or _bones(plain_type(given)) == _bones(wanted))


def _bones(kind: pa.DataType, depth: int = 0) -> Any:
    """What tells plain types apart: not how the inside of lists and maps is called, nor what may be NULL there."""
    if depth > DEPTH_MAX or isinstance(kind, pa.BaseExtensionType):
        return kind
    if pt.is_struct(kind):
        return ("struct", *((field.name, _bones(field.type, depth + 1)) for field in kind))
    if pt.is_map(kind):
        return ("map", _bones(kind.key_type, depth + 1), _bones(kind.item_type, depth + 1))
    if pt.is_fixed_size_list(kind):
        return ("fixed", kind.list_size, _bones(kind.value_type, depth + 1))
    if pt.is_list(kind) or pt.is_large_list(kind):
        return ("large" if pt.is_large_list(kind) else "list", _bones(kind.value_type, depth + 1))
    return kind


def plainly(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values as an array of a plain type. Requires: a type that `means` it, or leaves that can be cast."""
    kind = array.type
    if kind == wanted:
        return array
    if pt.is_dictionary(kind):
        return plainly(array.dictionary, wanted).take(array.indices)
    if pt.is_run_end_encoded(kind):
        ends = array.run_ends.to_numpy()
        rows = np.arange(array.offset, array.offset + len(array))
        return plainly(array.values, wanted).take(pa.array(np.searchsorted(ends, rows, "right")))
    if not pt.is_nested(kind):
        return array.cast(wanted)
    return _rebuilt(array, wanted)


def _rebuilt(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A nested array, its children made plain."""
    kind, rows = array.type, len(array)
    buffers = [None]
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        buffers = [pa.py_buffer(np.packbits(valid, bitorder="little"))]
    if pt.is_struct(kind):
        children = [plainly(array.field(n), wanted.field(n).type) for n in range(kind.num_fields)]
    elif pt.is_fixed_size_list(kind):
        size = wanted.list_size
        children = [plainly(array.values.slice(array.offset * size, rows * size), wanted.value_type)]
    else:
        offsets, values = listed(array)
        width = np.int64 if pt.is_large_list(wanted) else np.int32
        buffers.append(pa.py_buffer(offsets.astype(width)))
        inside = pa.struct([wanted.key_field, wanted.item_field]) if pt.is_map(wanted) else wanted.value_type
        children = [plainly(values, inside)]
    return pa.Array.from_buffers(wanted, rows, buffers, array.null_count, 0, children)


def listed(array: pa.Array) -> tuple[np.ndarray[Any, np.dtype[Any]], pa.Array]:
    """The offsets of a list or map, beginning with 0, and the values that they lead to."""
    if is_listed(array.type):
        if not len(array):
            return np.zeros(1, np.int64), array.values.slice(0, 0)
        offsets = array.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        return offsets - first if first else offsets, array.values.slice(first, last - first)
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)  # views, in any order
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, array.flatten()
