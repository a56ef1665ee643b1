"""`same_keys` against Python's comparison of the same values, for every type of key."""

from __future__ import annotations

import itertools
import random
import secrets
from typing import Any

import pyarrow as pa
import pytest

from lsmstate.hashing import hash_keys
from lsmstate.hashing.sameness import has_one_form, same_keys
from tests.support.key_values import FLAT, NANS_4, NANS_8, NESTED, POINT, plain_key, random_key

ROWS = 500


def told_by_python(ones: pa.Array, others: pa.Array) -> list[bool]:
    return [one is not None and one == other for one, other in zip(plain_key(ones), plain_key(others), strict=True)]


@pytest.mark.parametrize("kind", [*FLAT, *NESTED], ids=str)
def test_keys_are_the_same_where_python_says_so(kind: pa.DataType) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    ones = random_key(rng, kind, ROWS, few=True)
    others = pa.concat_arrays([ones.slice(0, 50), random_key(rng, kind, ROWS - 50, few=True)])
    expected = told_by_python(ones, others)
    assert any(expected) or kind == pa.binary(3)
    assert same_keys(ones, others).tolist() == expected
    assert same_keys(others, ones).tolist() == expected
    assert same_keys(ones.slice(13, 300), others.slice(13, 300)).tolist() == expected[13:313]
    assert same_keys(ones.slice(0, 0), others.slice(0, 0)).tolist() == []
    assert same_keys(pa.array([], kind), pa.array([], kind)).tolist() == []
    hashes = hash_keys([ones]), hash_keys([others])
    assert all(hashes[0][row] == hashes[1][row] for row, same in enumerate(expected) if same)


ALIKE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float32(), [*NANS_4]),
    (pa.float64(), [*NANS_8]),
    (pa.float64(), [0.0, -0.0]),
    (pa.list_(pa.float64()), [[0.0, None], [-0.0, None]]),
    (pa.list_(pa.int8()), [[], []]),
    (pa.list_(pa.null()), [[None], [None]]),
    (POINT, [{"x": None, "name": "a"}, {"x": None, "name": "a"}]),
    (pa.list_(POINT), [[{"x": NANS_8[0], "name": None}, None], [{"x": NANS_8[1], "name": None}, None]]),
]
UNLIKE: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [None, None]),
    (pa.list_(pa.int8()), [None, None]),
    (POINT, [None, {"x": None, "name": None}]),
    (POINT, [{"x": 0.0, "name": None}, {"x": None, "name": None}]),
    (pa.list_(pa.int8()), [[], [None], [None, None], [0]]),
    (pa.list_(pa.list_(pa.int8())), [[[]], [None], [], [[], []]]),
    (pa.string(), ["a", "A", "a ", "\u00e9", "e\u0301"]),
    (pa.binary(), [b"", b"\0", b"\0\0"]),
]


@pytest.mark.parametrize(("kind", "values"), ALIKE, ids=str)
def test_other_bytes_can_be_the_same_key(kind: pa.DataType, values: list[Any]) -> None:
    for one, other in itertools.permutations(values, 2):
        pair = [pa.array([value], kind) for value in (one, other)]
        assert same_keys(*pair).all()
        assert hash_keys(pair[:1]) == hash_keys(pair[1:])


@pytest.mark.parametrize(("kind", "values"), UNLIKE, ids=str)
def test_what_looks_alike_need_not_be_the_same_key(kind: pa.DataType, values: list[Any]) -> None:
    for one, other in itertools.permutations(values, 2):
        assert not same_keys(pa.array([one], kind), pa.array([other], kind)).any()


def test_what_lies_under_a_null_is_not_compared() -> None:
    values = [pa.array([1, 2]), pa.array([3, 2])]
    masked = [pa.StructArray.from_arrays([each], names=["a"], mask=pa.array([True, False])) for each in values]
    inner = [pa.StructArray.from_arrays([each], names=["s"]) for each in masked]
    assert same_keys(*masked).tolist() == [False, True]
    assert same_keys(*inner).tolist() == [True, True]


def test_only_floats_have_several_forms() -> None:
    assert {kind for kind in (*FLAT, *NESTED) if not has_one_form(kind)} == {
        *(pa.float32(), pa.float64(), pa.large_list(pa.float32()), POINT),
        *(kind for kind in NESTED if "double" in str(kind)),
    }
