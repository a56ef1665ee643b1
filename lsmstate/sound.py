"""Sound: what is safe to read, whatever its values say.

Owns the line between damage and an odd value. Damage is what could make a reader read outside of its buffers, or lose
count: validity, numbers of NULLs, offsets, lengths of children, indices. A value that Arrow lets in and would not make
itself is none: text that is not UTF-8, a time of 25 hours, a date64 within a day, a decimal beyond its precision. Spark
and casts bring them, and they come back bit for bit. Arrow's own full validation draws no such line: so each node is
shown to it alone, with a type of the same layout whose values may be anything. Pure functions.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from lsmstate.layout import is_listed


def check_batch(batch: pa.RecordBatch) -> None:
    """Raises ArrowInvalid if a column of a batch cannot be read safely."""
    batch.validate()
    for column in batch.columns:
        check_array(column)


def check_array(array: pa.Array) -> None:
    """Raises ArrowInvalid if an array cannot be read safely."""
    array.validate()  # sizes and ends, all the way down: what must hold before children are looked at
    _check_node(array)


def _check_node(array: pa.Array) -> None:
    kind = array.type
    if pt.is_struct(kind):
        _alone(array, pa.struct([]))
        for number in range(kind.num_fields):
            _check_node(array.field(number))
    elif is_listed(kind) or pt.is_fixed_size_list(kind):
        _alone(array, _list_of_nothing(kind), pa.nulls(len(array.values)))
        _check_node(array.values)
    elif pt.is_dictionary(kind):
        pa.DictionaryArray.from_arrays(array.indices, pa.nulls(len(array.dictionary))).validate(full=True)
        _check_node(array.dictionary)
    elif (free := _free(kind)) is not None:
        _alone(array, free)
    else:
        array.validate(full=True)


def _alone(array: pa.Array, kind: pa.DataType, *children: pa.Array) -> None:
    """Validates the buffers of a node itself as a type of the same layout."""
    own = array.buffers()
    if pt.is_nested(kind):  # those of its children come after its own
        own = own[: kind.num_buffers]
    alone = pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, list(children) or None)
    alone.validate(full=True)


def _list_of_nothing(kind: pa.DataType) -> pa.DataType:
    """The type of a list or map whose values take no bytes."""
    if pt.is_fixed_size_list(kind):
        return pa.list_(pa.null(), kind.list_size)
    return pa.large_list(pa.null()) if pt.is_large_list(kind) else pa.list_(pa.null())


def _free(kind: pa.DataType) -> pa.DataType | None:
    """The type that lies in memory as this one does, and whose values may be anything; None where it is one."""
    if pt.is_string(kind):
        return pa.binary()
    if pt.is_large_string(kind):
        return pa.large_binary()
    if pt.is_string_view(kind):
        return pa.binary_view()
    if pt.is_decimal(kind):
        return pa.binary(kind.bit_width // 8)
    if pt.is_date(kind) or pt.is_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return None
