"""Columns: every supported type is written and read back the same, whole and by rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsmstate import CorruptionError
from lsmstate.layout import is_payload_type, layout_of
from lsmstate.sstable.blocks import Blocks
from lsmstate.sstable.columns import StoredColumn, write_column
from lsmstate.sstable.format import BLOCK
from lsmstate.sstable.trees import StoredTree, stored_column, write_any
from tests.support.block_file import UID, BlockFile
from tests.support.column_values import VALUES

kinds = pytest.mark.parametrize("kind", VALUES, ids=str)


def stored(array: pa.Array) -> StoredColumn | StoredTree:
    """The column as it is found in a file, between other sections."""
    file = BlockFile()
    file.writer.append(b"before")
    told = write_any(file.writer, layout_of(array.type), [array])
    file.writer.append(b"after")
    return stored_column(file.blocks(), layout_of(array.type), len(array), told)


def filled(kind: pa.DataType, shape: str) -> pa.Array:
    """Values of a type: some rows, many, with NULLs, only NULLs."""
    values = VALUES[kind]
    rows = {
        "few": values,
        "one": values[:1],
        "with NULLs": [None, *values, None, *values, None],
        "only NULLs": [None] * 9,
        "many": values * 300,
        "many with NULLs": [*values, None] * 300,
    }[shape]
    return pa.array(rows, kind)


shapes = pytest.mark.parametrize("shape", ["few", "one", "with NULLs", "only NULLs", "many", "many with NULLs"])


def test_every_supported_type_is_tested() -> None:
    assert all(is_payload_type(kind) for kind in VALUES)


@shapes
@kinds
def test_column_reads_back_the_same(kind: pa.DataType, shape: str) -> None:
    array = filled(kind, shape)
    whole = stored(array).whole()
    whole.validate(full=True)
    assert whole.equals(array)
    assert whole.null_count == array.null_count


@shapes
@kinds
def test_some_rows_of_a_column_read_back_the_same(kind: pa.DataType, shape: str) -> None:
    array = filled(kind, shape)
    column = stored(array)
    rng = np.random.default_rng(1)
    for count in (0, 1, 3, 40, len(array), 3 * len(array)):
        rows = rng.integers(0, len(array), count)
        got = column.take(rows)
        got.validate(full=True)
        assert got.equals(array.take(pa.array(rows, pa.int64())))


@kinds
def test_taken_slice_of_a_batch_reads_back_the_same(kind: pa.DataType) -> None:
    array = filled(kind, "with NULLs").slice(3, 4)
    taken = array.take(pa.array([2, 0, 3, 1]))
    assert stored(taken).whole().equals(taken)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str)
def test_column_of_empty_values_reads_back_the_same(kind: pa.DataType) -> None:
    for values in ([""] * 5, ["", None, ""], [None, None]):
        array = pa.array(values, kind)
        assert stored(array).whole().equals(array)
        assert stored(array).take(np.array([1, 0])).equals(array.take(pa.array([1, 0])))


def test_damage_is_seen_by_the_rows_that_it_hits_and_no_others() -> None:
    rows = 400_000  # so many that a few do not touch all of it
    array = pa.array(np.arange(rows))
    file = BlockFile()
    told = write_column(file.writer, layout_of(array.type), [array])
    sums = file.finish()
    damaged = bytearray(file.data)
    damaged[10 * BLOCK] ^= 1
    hit = 10 * BLOCK // 8

    def column() -> StoredColumn:
        return StoredColumn(Blocks("f", UID, memoryview(bytes(damaged)), sums), layout_of(array.type), rows, told)

    assert column().take(np.array([0, hit - 1, rows - 1])).to_pylist() == [0, hit - 1, rows - 1]
    with pytest.raises(CorruptionError):
        column().take(np.array([hit]))
    with pytest.raises(CorruptionError):
        column().whole()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("offsets", [[0, 5, 3, 6], [0, 3, 6, 2**30], [-1, 3, 4, 6], [0, 7, 7, 7]])
def test_hostile_offsets_are_corruption_though_their_checksums_are_right(kind: pa.DataType, offsets: list[int]) -> None:
    wide = np.int64 if kind == pa.large_binary() else np.int32
    file = BlockFile()
    places = [file.writer.append(np.array(offsets, wide).tobytes()), file.writer.append(b"abcdef")]
    blocks = file.blocks()
    for read in (lambda c: c.whole(), lambda c: c.take(np.arange(3))):
        column = StoredColumn(blocks, layout_of(kind), 3, {"nulls": 0, "buffers": [None, *places]})
        with pytest.raises(CorruptionError, match="offsets within 6 bytes"):
            read(column)


HOSTILE: dict[str, dict[str, Any]] = {
    "too short": {"nulls": 0, "buffers": [None, [0, 16, 0]]},
    "outside": {"nulls": 0, "buffers": [None, [64, 128, 0]]},
    "not aligned": {"nulls": 0, "buffers": [None, [8, 24, 0]]},
    "no values": {"nulls": 0, "buffers": [None]},
    "one too many": {"nulls": 0, "buffers": [None, [0, 24, 0], [0, 24, 0]]},
    "nulls without bits": {"nulls": 1, "buffers": [None, [0, 24, 0]]},
    "bits without nulls": {"nulls": 0, "buffers": [[0, 1, 0], [0, 24, 0]]},
    "more nulls than rows": {"nulls": 4, "buffers": [[0, 1, 0], [0, 24, 0]]},
    "bits too short": {"nulls": 1, "buffers": [[0, 0, 0], [0, 24, 0]]},
    "negative": {"nulls": 0, "buffers": [None, [0, -24, 0]]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_index_that_does_not_fit_its_type_is_refused(case: str) -> None:
    file = BlockFile()
    file.writer.append(bytes(100))
    blocks = file.blocks()
    with pytest.raises(ValueError, match=r"buffer|section|bits"):
        StoredColumn(blocks, layout_of(pa.int64()), 3, HOSTILE[case])
