"""Trees: what a hostile index or hostile bytes with right checksums tell is refused before Arrow sees it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsmstate import CorruptionError
from lsmstate.layout import layout_of
from lsmstate.sstable.trees import StoredTree, bytes_of, write_any
from tests.support.block_file import BlockFile

INT_LIST = pa.list_(pa.int64())
MAP = pa.map_(pa.string(), pa.int64())
PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
SAMPLES: dict[pa.DataType, list[Any]] = {
    INT_LIST: [[1, None], None, [3, 4, 5]],
    MAP: [[("a", 1), ("b", None)], [], [("c", 3)]],
    PAIR: [{"a": 1, "b": "x"}, None, {"a": None, "b": None}],
    pa.list_(pa.int32(), 2): [[1, 2], None, [None, 4]],
    pa.list_(pa.null()): [[None, None], [], [None]],
    pa.list_(pa.list_(pa.string())): [[["a"], None], [], [["b", "c"]]],
}


def written(kind: pa.DataType) -> tuple[BlockFile, dict[str, Any]]:
    file = BlockFile()
    return file, write_any(file.writer, layout_of(kind), [pa.array(SAMPLES[kind], kind)])


def broken(told: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    told = copy.deepcopy(told)
    change(told["parts"][0])
    return told


def column(rows: int, told: dict[str, Any]) -> dict[str, Any]:
    """A column of one part."""
    return {"nulls": told["nulls"], "parts": [{"rows": rows, **told}]}


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "more NULLs than rows": lambda told: told.update(nulls=4),
    "NULLs below zero": lambda told: told.update(nulls=-1),
    "NULLs as text": lambda told: told.update(nulls="1"),
    "NULLs as a truth": lambda told: told.update(nulls=True),
    "NULLs as a fraction": lambda told: told.update(nulls=1.0),
    "no buffers": lambda told: told.update(buffers=[]),
    "buffers that are no list": lambda told: told.update(buffers=7),
    "a buffer too many": lambda told: told["buffers"].append([0, 64, 0]),
    "no children": lambda told: told.update(children=[]),
    "children missing": lambda told: told.pop("children"),
    "children that are no list": lambda told: told.update(children=3),
    "a child too many": lambda told: told["children"].append(told["children"][0]),
    "a child that is no object": lambda told: told.update(children=[5] * len(told["children"])),
    "a child without rows": lambda told: told["children"][0].pop("rows"),
    "a child with rows below zero": lambda told: told["children"][0].update(rows=-1),
    "a child with far too many rows": lambda told: told["children"][0].update(rows=1 << 62),
    "a child with endless rows": lambda told: told["children"][0].update(rows=1 << 80),
    "a child with rows as text": lambda told: told["children"][0].update(rows="3"),
    "a child with rows as a truth": lambda told: told["children"][0].update(rows=True),
    "a child without buffers": lambda told: told["children"][0].update(buffers=[]),
    "a child that lies outside": lambda told: told["children"][0].update(buffers=[[1 << 40, 8, 0]] * 3),
}


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.parametrize("kind", SAMPLES, ids=str)
def test_index_that_does_not_fit_a_tree_is_refused(kind: pa.DataType, case: str) -> None:
    file, told = written(kind)
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):  # what readers of an index take for damage
        StoredTree(file.blocks(), layout_of(kind), 3, broken(told, CHANGES[case])).whole()


PARTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "none": lambda told: told.update(parts=[]),
    "missing": lambda told: told.pop("parts"),
    "no list": lambda told: told.update(parts=1),
    "one twice": lambda told: told["parts"].append(told["parts"][0]),
    "no objects": lambda told: told.update(parts=[3]),
    "rows missing": lambda told: told["parts"][0].pop("rows"),
    "rows that make up for others": lambda told: told["parts"].extend([told["parts"][0], {"rows": -3}]),
    "other NULLs in all": lambda told: told.update(nulls=3),
}


@pytest.mark.parametrize("case", PARTS)
@pytest.mark.parametrize("kind", SAMPLES, ids=str)
def test_parts_that_do_not_fit_the_column_are_refused(kind: pa.DataType, case: str) -> None:
    file, told = written(kind)
    PARTS[case](told)
    with pytest.raises((ValueError, TypeError, KeyError)):
        StoredTree(file.blocks(), layout_of(kind), 3, told)


@pytest.mark.parametrize("kind", SAMPLES, ids=str)
def test_column_of_several_parts_reads_as_one(kind: pa.DataType) -> None:
    file, array = BlockFile(), pa.array(SAMPLES[kind] * 5, kind)
    pieces = [array.slice(0, 4), array.slice(4, 1), array.slice(5, 0), array.slice(5)]
    told = write_any(file.writer, layout_of(kind), pieces)
    blocks, rng = file.blocks(), np.random.default_rng(1)
    assert StoredTree(blocks, layout_of(kind), 15, told).whole().equals(array)
    for rows in ([], [14], [0, 4, 5, 14], [5, 3, 5, 0, 14, 4], rng.integers(0, 15, 40)):
        taken = StoredTree(blocks, layout_of(kind), 15, told).take(np.array(rows, np.int64))
        taken.validate(full=True)
        assert taken.equals(array.take(pa.array(rows, pa.int64())))


@pytest.mark.parametrize("rows", [0, 1, 2, 4, 9, 1 << 40])
@pytest.mark.parametrize("kind", SAMPLES, ids=str)
def test_tree_of_another_number_of_rows_is_refused(kind: pa.DataType, rows: int) -> None:
    file, told = written(kind)
    with pytest.raises((ValueError, CorruptionError)):
        StoredTree(file.blocks(), layout_of(kind), rows, told).whole()


@pytest.mark.parametrize("wide", [False, True], ids=["list", "large_list"])
@pytest.mark.parametrize(
    "offsets",
    [[0, 2, 1, 3], [1, 2, 2, 3], [-1, 0, 1, 3], [0, 1, 2, 2], [0, 1, 2, 4], [0, 5, 5, 3], [0, 1, 2, 2**31 - 1]],
)
def test_hostile_offsets_of_lists_are_corruption_though_their_checksums_are_right(
    offsets: list[int], wide: bool
) -> None:
    kind = pa.large_list(pa.int8()) if wide else pa.list_(pa.int8())
    file = BlockFile()
    place = file.writer.append(np.array(offsets, np.int64 if wide else np.int32).tobytes())
    child = write_any(file.writer, layout_of(pa.int8()), [pa.array([1, 2, 3], pa.int8())])
    told = {"nulls": 0, "buffers": [None, place], "children": [{"rows": 3, **child}]}
    with pytest.raises(CorruptionError, match="offsets from 0 to 3"):
        StoredTree(file.blocks(), layout_of(kind), 3, column(3, told)).take(np.array([1]))


@pytest.mark.parametrize("bits", [0b000, 0b001, 0b111])
def test_validity_that_tells_of_other_nulls_is_corruption(bits: int) -> None:
    file = BlockFile()
    valid = file.writer.append(bytes([bits]))
    child = write_any(file.writer, layout_of(pa.int8()), [pa.array([1, 2, 3], pa.int8())])
    kind = pa.struct([("a", pa.int8())])
    told = {"nulls": 1, "buffers": [valid], "children": [{"rows": 3, **child}]}
    with pytest.raises(CorruptionError, match="1 NULLs in 3 rows"):
        StoredTree(file.blocks(), layout_of(kind), 3, column(3, told)).whole()


def test_map_with_a_null_key_or_entry_is_refused() -> None:
    entries = pa.struct([("key", pa.string()), ("value", pa.int64())])
    for values in ([{"key": None, "value": 1}], [None]):
        file = BlockFile()
        offsets = file.writer.append(np.array([0, 1], np.int32).tobytes())
        (child,) = write_any(file.writer, layout_of(entries), [pa.array(values, entries)])["parts"]
        told = column(1, {"nulls": 0, "buffers": [None, offsets], "children": [child]})
        with pytest.raises(ValueError, match="entries or keys that are NULL"):
            StoredTree(file.blocks(), layout_of(MAP), 1, told)


@pytest.mark.parametrize("kind", [pa.null(), pa.struct([]), pa.binary(0), pa.list_(pa.int8(), 0)], ids=str)
def test_values_without_bytes_take_a_bit_each_so_that_no_file_tells_of_endless_rows(kind: pa.DataType) -> None:
    file = BlockFile()
    told = write_any(file.writer, layout_of(kind), [pa.nulls(9, kind)])
    blocks = file.blocks()
    assert bytes_of(told) >= 2
    assert StoredTree(blocks, layout_of(kind), 9, told).whole().equals(pa.nulls(9, kind))
    for rows in (17, 1 << 50):
        with pytest.raises(ValueError, match=r"short|parts"):
            StoredTree(blocks, layout_of(kind), rows, column(rows, {**told["parts"][0], "nulls": rows, "rows": rows}))
    with pytest.raises(ValueError, match="do not fit"):
        StoredTree(blocks, layout_of(kind), 9, column(9, {**told["parts"][0], "buffers": [None]}))


def test_damaged_byte_anywhere_in_a_tree_is_seen_before_any_row_is_read() -> None:
    for kind in SAMPLES:
        file, told = written(kind)
        layout = layout_of(kind)
        sound = StoredTree(file.blocks(), layout, 3, told).whole()
        for at in range(len(file.data)):
            damaged = bytearray(file.data)
            damaged[at] ^= 0xFF
            try:
                got = StoredTree(file.blocks_of(bytes(damaged)), layout, 3, told).take(np.arange(3))
            except CorruptionError:
                continue
            assert got.equals(sound), "a gap between sections is nobody's"


def test_index_that_nests_without_end_has_no_size() -> None:
    told: dict[str, Any] = {"buffers": []}
    for _ in range(60):
        told = {"buffers": [], "children": [told]}
    with pytest.raises(ValueError, match="too deep"):
        bytes_of(told)
