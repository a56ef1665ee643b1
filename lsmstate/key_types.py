"""Types of keys: which can be one, what to do where one cannot, and what two different ones have in common.

Owns the rules, which are Spark's: a key is what it can compare. Where Arrow has several types for what Spark has one,
only that one is a key, so that equal keys have equal hashes. Holds no state and may be called from any thread.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from lsmstate.hashing import is_hashable

_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_MOST_DIGITS = 38


def is_key_type(kind: pa.DataType) -> bool:
    """Whether a column of this type can be a key."""
    return is_hashable(kind)


def way_out(kind: pa.DataType) -> str:
    """What to do with a column that can be no key. Requires: not `is_key_type`."""
    if pt.is_struct(kind):
        bad = next(field for field in kind.fields if not is_key_type(field.type))
        return f"its field {bad.name!r} is {bad.type}: {way_out(bad.type)}"
    if pt.is_map(kind):
        return "maps cannot be compared; make it a list of structs that is sorted by key"
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return f"its elements are {kind.value_type}: {way_out(kind.value_type)}"
    if pt.is_interval(kind):
        return "calendar intervals cannot be compared; make it a number, such as that of its months"
    return f"cast it to {_meant(kind)}"


def _meant(kind: pa.DataType) -> str:
    """The type that stands for a kind of values as a key."""
    if pt.is_float16(kind):
        return "float"
    if pt.is_date64(kind):
        return "date32"
    if pt.is_timestamp(kind):
        return str(pa.timestamp("us", kind.tz))
    if pt.is_time(kind):
        return str(pa.time64("us"))
    if pt.is_duration(kind):
        return str(pa.duration("us"))
    if pt.is_dictionary(kind):
        return str(kind.value_type)
    if kind == pa.binary_view():
        return "binary"
    return "string"


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type to which Spark casts two different ones to compare them; None where it cannot.

    Unsigned numbers, which Spark has not, count as the next wider signed ones.
    """
    if one == other:
        return one
    for kind, its in ((one, other), (other, one)):
        if pt.is_null(kind):
            return its
        found = _with_text(kind, its) or _of_moments(kind, its) or _of_lists(kind, its)
        if found is not None:
            return found
    return _of_structs(one, other) or _of_numbers(_signed(one), _signed(other))


def _of_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.index)
    if not all(kind in _WHOLE or pt.is_floating(kind) or pt.is_decimal(kind) for kind in (one, other)):
        return None
    if pt.is_floating(one) or pt.is_floating(other):
        return pa.float64()
    (digits, scale), (its_digits, its_scale) = _decimal(one), _decimal(other)
    most = max(scale, its_scale)
    whole = max(digits - scale, its_digits - its_scale)
    if whole + most <= _MOST_DIGITS:
        return pa.decimal128(whole + most, most)
    return pa.decimal128(_MOST_DIGITS, max(0, _MOST_DIGITS - whole))  # digits before the point count more


def _decimal(kind: pa.DataType) -> tuple[int, int]:
    return (kind.precision, kind.scale) if pt.is_decimal(kind) else (_DIGITS[kind], 0)


def _signed(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(20, 0) if kind == pa.uint64() else _SIGNED.get(kind, kind)


def _with_text(text: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """What a string is compared with says as what."""
    if _is_bytes(text) and _is_bytes(other):
        return pa.binary()
    if not _is_string(text):
        return None
    if _is_string(other):
        return pa.string()
    if _is_bytes(other):
        return pa.binary()
    if _signed(other) in _WHOLE:
        return pa.int64()
    if pt.is_floating(other) or pt.is_decimal(other) or pt.is_uint64(other):
        return pa.float64()
    return other if pt.is_boolean(other) or pt.is_date(other) or pt.is_timestamp(other) else None


def _of_moments(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A moment without a zone is one of the session's zone to Spark."""
    if not pt.is_timestamp(one) or not is_key_type(one):
        return None
    if pt.is_timestamp(other):
        return one if one.tz is not None else None
    return one if pt.is_date32(other) else None


def _of_lists(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not all(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind) for kind in (one, other)):
        return None
    element = common_type(one.value_type, other.value_type)
    return None if element is None else pa.list_(element)


def _of_structs(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Fields are compared by place; those of different names are not cast."""
    if not pt.is_struct(one) or not pt.is_struct(other) or one.num_fields != other.num_fields:
        return None
    fields = []
    for mine, its in zip(one.fields, other.fields, strict=True):
        kind = common_type(mine.type, its.type)
        if kind is None or (mine.name.lower() != its.name.lower() and mine.type != its.type):
            return None
        fields.append(pa.field(mine.name, kind))
    return pa.struct(fields)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def cast_to_meet(one: pa.DataType, other: pa.DataType) -> str:
    """What makes two keys of different types comparable, in words."""
    common = common_type(one, other)
    if common is None:
        return "Spark cannot compare them either; make them one type"
    both = "both" if common not in (one, other) else "the first" if common == other else "the second"
    return f"cast {both} to {common}"
