"""What is safe to read passes, whatever its values say; what would lead a reader out of its buffers does not."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from lsmstate.sound import check_array, check_batch
from tests.support.odd_values import ODD
from tests.support.random_values import ALL, array_of

ENCODED: dict[str, pa.Array] = {
    "dictionary": pa.array(["a", None, "b"], pa.dictionary(pa.int8(), pa.string())),
    "string_view": pa.array(["a", None, "long enough for a buffer"], pa.string_view()),
    "list_view": pa.array([["a"], None, ["b", None]], pa.list_view(pa.string())),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", "b"])),
}
OUTSIDE = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(np.array([0, 9, 1], np.int32)), pa.py_buffer(b"a")]
)  # the first row ends beyond the data; the whole does not
MISCOUNTED = pa.Array.from_buffers(pa.time64("us"), 2, [pa.py_buffer(b"\xff"), pa.py_buffer(bytes(16))], 1)


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_ordinary_values_of_every_type_are_sound(kind: pa.DataType) -> None:
    array = array_of(Random(1), kind, 9)
    for part in (array, array.slice(3, 4), array.slice(9)):
        check_array(part)


@pytest.mark.parametrize("array", ODD.values(), ids=ODD)
def test_values_that_arrow_would_not_make_are_sound(array: pa.Array) -> None:
    with pytest.raises(pa.ArrowInvalid):
        array.validate(full=True)
    check_array(array)
    check_array(array.slice(1, 1))
    check_batch(pa.record_batch({"v": array}))


@pytest.mark.parametrize("array", ENCODED.values(), ids=ENCODED)
def test_encoded_values_are_sound(array: pa.Array) -> None:
    check_array(array)
    check_array(array.slice(1))


def test_text_that_is_not_utf8_is_sound_in_encodings() -> None:
    text = ODD["string"]
    check_array(pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), text.slice(0, 2)))
    check_array(text.cast(pa.string_view()))


LISTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "flat": lambda array: array,
    "list": lambda array: pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), array),
    "large_list": lambda array: pa.LargeListArray.from_arrays(pa.array([0, 1, 2], pa.int64()), array),
    "fixed_size_list": lambda array: pa.FixedSizeListArray.from_arrays(array, 2),
    "struct": lambda array: pa.StructArray.from_arrays([pa.array([1, 2]), array], ["n", "v"]),
    "map": lambda array: pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array([1, 2]), array),
    "dictionary": lambda array: pa.DictionaryArray.from_arrays(pa.array([0, 0]), array),
}


@pytest.mark.parametrize("inside", LISTS.values(), ids=LISTS)
def test_offsets_that_lead_outside_are_refused_wherever_they_are(inside: Callable[[pa.Array], pa.Array]) -> None:
    with pytest.raises((pa.ArrowInvalid, pa.ArrowIndexError)):
        check_array(inside(OUTSIDE))


@pytest.mark.parametrize("inside", LISTS.values(), ids=LISTS)
def test_another_number_of_nulls_than_told_is_refused_wherever_it_is(inside: Callable[[pa.Array], pa.Array]) -> None:
    with pytest.raises(pa.ArrowInvalid, match="null"):
        check_array(inside(MISCOUNTED))


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.map_(pa.int8(), pa.int8())], ids=str)
def test_lists_that_lead_outside_of_their_child_are_refused(kind: pa.DataType) -> None:
    numbers = pa.array([1], pa.int8())
    child = numbers if pa.types.is_list(kind) else pa.StructArray.from_arrays([numbers, numbers], ["key", "value"])
    offsets = pa.py_buffer(np.array([0, 9, 1], np.int32))
    array = pa.Array.from_buffers(kind, 2, [None, offsets], 0, 0, [child])
    with pytest.raises(pa.ArrowInvalid):
        check_array(array)


def test_struct_with_another_number_of_nulls_than_told_is_refused() -> None:
    kind, children = pa.struct([("n", pa.int64())]), [pa.array([1, 2])]
    with pytest.raises(pa.ArrowInvalid, match="null_count"):
        check_array(pa.Array.from_buffers(kind, 2, [pa.py_buffer(b"\xff")], 1, 0, children))


def test_index_outside_of_a_dictionary_is_refused() -> None:
    outside = pa.DictionaryArray.from_arrays(pa.array([5]), pa.array(["a"]), safe=False)
    with pytest.raises((pa.ArrowInvalid, pa.ArrowIndexError)):
        check_array(outside)
