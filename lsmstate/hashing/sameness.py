"""Which keys are the same, as Spark compares them.

This module owns the rule. It holds no state and may be called from any thread. A NULL key is the same as
nothing; inside of a list or a struct a NULL is the same as a NULL. All NaN are the same, and so are 0.0 and -0.0, at
any depth. Strings and binaries are compared by their bytes, decimals by their value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lsmstate.hashing.nested import spans
from lsmstate.hashing.types import valid_rows

_Bools = npt.NDArray[np.bool_]


def same_keys(ones: pa.Array, others: pa.Array) -> _Bools:
    """Which keys of two columns are the same, row by row. Requires: columns of one type and length, which can be
    hashed."""
    return _same(ones, others) & valid_rows(ones)


def has_one_form(kind: pa.DataType) -> bool:
    """Whether keys of this type that are the same have the same bytes. Not so where there are floats."""
    if pt.is_struct(kind):
        return all(has_one_form(kind.field(number).type) for number in range(kind.num_fields))
    return has_one_form(kind.value_type) if pt.is_nested(kind) else not pt.is_floating(kind)


def _same(ones: pa.Array, others: pa.Array) -> _Bools:
    """The same, where a NULL is the same as a NULL."""
    kind = ones.type
    same = np.ones(len(ones), np.bool_)
    if not len(ones):
        return same  # Arrow may leave buffers out
    if pt.is_struct(kind):
        for number in range(kind.num_fields):
            same &= _same(ones.field(number), others.field(number))
    elif pt.is_null(kind):
        pass  # NULL, all of them
    elif pt.is_nested(kind):
        same = _same_lists(ones, others)
    elif pt.is_floating(kind):
        values, theirs = (_floats(each) for each in (ones, others))
        same = (values == theirs) | (np.isnan(values) & np.isnan(theirs))
    else:
        same = pc.equal(ones, others).fill_null(False).to_numpy(zero_copy_only=False)
    if ones.null_count or others.null_count:
        valid, known = valid_rows(ones), valid_rows(others)
        same = np.where(valid & known, same, valid == known)
    return same


def _same_lists(ones: pa.Array, others: pa.Array) -> _Bools:
    """Which lists have as many elements, all of them the same."""
    (starts, lengths), (their_starts, their_lengths) = spans(ones), spans(others)
    same: _Bools = lengths == their_lengths
    counts = np.where(same, lengths, 0)
    rows = np.repeat(np.arange(len(ones)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    elements = ones.values.take(pa.array(starts[rows] + within))
    theirs = others.values.take(pa.array(their_starts[rows] + within))
    same[rows[~_same(elements, theirs)]] = False
    return same


def _floats(array: pa.Array) -> npt.NDArray[Any]:
    """The values, NULLs as whatever stands there."""
    stored = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1], stored, len(array), array.offset * stored.itemsize)
