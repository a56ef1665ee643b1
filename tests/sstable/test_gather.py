"""Rows gathered in any order are those that Arrow takes, whatever the type, by the compiled loops and without them."""

from __future__ import annotations

from decimal import Decimal
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate.native import kernel as loaded
from lsmstate.sstable import gather
from lsmstate.sstable.gather import layout_to_take, taken
from tests.support.loops import loops  # noqa: F401  both ways

KINDS = {
    pa.int8(): lambda n: n % 100,
    pa.int16(): lambda n: -n,
    pa.float32(): lambda n: n / 2,
    pa.int64(): lambda n: n << 40,
    pa.timestamp("us", "UTC"): lambda n: n,
    pa.decimal128(20, 2): lambda n: Decimal(n) / 4,
    pa.decimal256(50, 2): lambda n: Decimal(n) / 4,
    pa.binary(3): lambda n: f"{n:03}"[:3].encode(),
    pa.bool_(): lambda n: n % 3 == 0,
    pa.string(): lambda n: "é" * (n * 7 % 50),
    pa.large_string(): lambda n: str(n) * (n % 9),
    pa.binary(): lambda n: bytes([n % 256]) * (n % 70),
    pa.list_(pa.int8()): lambda n: [n % 5] * (n % 4),
    pa.struct([("a", pa.string())]): lambda n: {"a": str(n)},
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small arrays take the same way as large ones."""
    monkeypatch.setattr(gather, "_FEW", 0)


@pytest.fixture(scope="module")
def kernel() -> ModuleType:
    assert loaded is not None, "lsmstate was installed without a compiler"
    return loaded


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(
    st.integers(1, 90),
    st.integers(0, 30),
    st.booleans(),
    st.lists(st.integers(0, 2**32), max_size=200),
    st.sampled_from([np.int64, np.uint32]),
)
def test_taken_rows_are_those_of_arrow(
    kind: pa.DataType, count: int, first: int, has_nulls: bool, picks: list[int], width: type
) -> None:
    values = [None if has_nulls and n % 5 == 0 else KINDS[kind](n) for n in range(first + count)]
    array = pa.array(values, kind).slice(first)
    rows = np.array([pick % count for pick in picks], width)
    found = taken(layout_to_take(kind), array, rows)
    found.validate(full=True)
    assert found.type == kind
    assert found.equals(array.take(pa.array(rows)))


def test_types_without_a_layout_are_taken_by_arrow() -> None:
    array = pa.array(["a", "b", "a"]).dictionary_encode()
    assert layout_to_take(array.type) is None
    assert taken(None, array, np.array([2, 1])).to_pylist() == ["a", "b"]


@pytest.mark.parametrize("width", [np.int64, np.uint32])
@pytest.mark.parametrize("rows", [[0, 3], [2**31], [2**32 - 1]])
def test_rows_that_do_not_exist_are_refused(kernel: ModuleType, rows: list[int], width: type) -> None:
    asked = np.array(rows, width)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.take_fixed(np.arange(3), 8, asked, asked.itemsize, np.empty(len(rows)))
    offsets = np.array([0, 1, 2, 3], np.int32)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.take_offsets(offsets, 4, 3, asked, asked.itemsize, np.empty(len(rows) + 1, np.int32))
    with pytest.raises(ValueError, match="do not fit"):
        kernel.take_bytes(offsets, 4, b"abc", asked, asked.itemsize, np.empty(50, np.uint8))


def test_negative_rows_are_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        kernel.take_fixed(np.arange(3), 8, np.array([-1]), 8, np.empty(1))


@pytest.mark.parametrize("offsets", [[0, 4], [-1, 2], [2, 1], [2**31 - 1, 2**31 - 1]])
def test_offsets_that_lead_out_of_the_bytes_are_refused(kernel: ModuleType, offsets: list[int]) -> None:
    for width in (np.int32, np.int64):
        told, rows = np.array(offsets, width), np.zeros(1, np.int64)
        with pytest.raises(ValueError, match="do not fit"):
            kernel.take_offsets(told, told.itemsize, 3, rows, 8, np.empty(2, width))
        with pytest.raises(ValueError, match="do not fit"):
            kernel.take_bytes(told, told.itemsize, b"abc", rows, 8, np.empty(50, np.uint8))


def test_strings_that_need_more_than_their_offsets_can_tell_are_told(kernel: ModuleType) -> None:
    offsets, rows = np.array([0, 2**30], np.int32), np.zeros(2, np.int64)
    assert kernel.take_offsets(offsets, 4, 2**30, rows, 8, np.empty(3, np.int32)) == -1
    wide = np.array([0, 2**30], np.int64)
    assert kernel.take_offsets(wide, 8, 2**30, rows, 8, np.empty(3, np.int64)) == 2**31


def test_room_that_is_too_small_is_refused(kernel: ModuleType) -> None:
    offsets, rows = np.array([0, 2, 3], np.int32), np.array([0, 1, 0])
    ends = np.empty(4, np.int32)
    size = kernel.take_offsets(offsets, 4, 3, rows, 8, ends)
    assert (size, ends.tolist()) == (5, [0, 2, 3, 5])
    out = np.zeros(size, np.uint8)
    assert kernel.take_bytes(offsets, 4, b"abc", rows, 8, out) == 5
    assert out.tobytes() == b"abcab"
    with pytest.raises(ValueError, match="do not fit"):
        kernel.take_bytes(offsets, 4, b"abc", rows, 8, np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match="do not fit"):
        kernel.take_offsets(offsets, 4, 3, rows, 8, np.empty(3, np.int32))
    with pytest.raises(ValueError, match="do not fit"):
        kernel.take_fixed(np.arange(3), 8, rows, 8, np.empty(2))
    for odd in ((np.arange(3), 0, rows, 8), (np.arange(3), 8, rows, 3)):
        with pytest.raises(ValueError, match="do not fit"):
            kernel.take_fixed(*odd, np.empty(3))
