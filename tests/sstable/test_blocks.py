"""Blocks: every byte that is read was summed, and a sum belongs to one place of one file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate import CorruptionError
from lsmstate.sstable.blocks import Blocks, Section
from lsmstate.sstable.format import ALIGN, BLOCK, uid_of
from tests.support.block_file import UID, BlockFile


def written(sections: Sequence[bytes]) -> tuple[bytes, list[tuple[int, int]], Blocks]:
    """The data, where each section stands in it, and the blocks."""
    file = BlockFile()
    places = [file.writer.append(section) for section in sections]
    blocks = file.blocks()
    return file.data, places, blocks


def sums_of(*sections: bytes) -> list[int]:
    file = BlockFile()
    for section in sections:
        file.writer.append(section)
    return file.finish().tolist()


def reread(data: bytes, like: bytes) -> Blocks:
    """Blocks over other bytes than were summed."""
    return Blocks("f", UID, memoryview(data), np.array(sums_of(like), np.uint64))


sizes = st.one_of(
    st.integers(0, 200), st.sampled_from([BLOCK - 64, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 7])
)


@given(st.lists(sizes, max_size=6))
def test_sections_are_aligned_and_read_back(lengths: list[int]) -> None:
    sections = [bytes([n + 1]) * length for n, length in enumerate(lengths)]
    data, places, blocks = written(sections)
    assert len(data) % ALIGN == 0
    for section, (start, length) in zip(sections, places, strict=True):
        assert start % ALIGN == 0
        blocks.touch(start, start + length)
        assert data[start : start + length] == section
    assert blocks.bad_blocks() == []


def test_sums_do_not_depend_on_how_the_data_was_cut() -> None:
    data = np.random.default_rng(1).bytes(5 * BLOCK + 640)
    cuts = [0, 64, BLOCK - 64, BLOCK, 3 * BLOCK + 128, len(data)]
    parts = [data[start:end] for start, end in pairwise(cuts)]
    assert sums_of(data) == sums_of(*parts)


@pytest.mark.parametrize("at", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 5, 3 * BLOCK + 63])
def test_flipped_bit_is_seen_when_its_block_is_touched(at: int) -> None:
    data = np.random.default_rng(1).bytes(3 * BLOCK + 64)
    damaged = bytearray(data)
    damaged[at] ^= 4
    blocks = reread(bytes(damaged), data)
    block = at // BLOCK
    for number in range(4):
        start, end = number * BLOCK, min((number + 1) * BLOCK, len(data))
        if number != block:
            blocks.touch(start, end)
        else:
            for _ in range(2):
                with pytest.raises(CorruptionError) as error:
                    blocks.touch(start, end)
                assert error.value.offset == block * BLOCK
    assert blocks.bad_blocks() == [block]


def test_blocks_that_changed_places_are_seen() -> None:
    first, second = np.random.default_rng(1).bytes(BLOCK), np.random.default_rng(2).bytes(BLOCK)
    assert reread(second + first, first + second).bad_blocks() == [0, 1]
    assert reread(first + first, first + second).bad_blocks() == [1]


def test_block_of_another_file_is_seen() -> None:
    data = np.random.default_rng(1).bytes(2 * BLOCK)
    sums = np.array(sums_of(data), np.uint64)
    assert Blocks("f", uid_of("other.sst"), memoryview(data), sums).bad_blocks() == [0, 1]


def test_wrong_number_of_sums_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="1 block sums"):
        Blocks("f", UID, memoryview(bytes(10)), np.zeros(2, np.uint64))


@pytest.mark.parametrize("count", [1, 5, 31, 32, 33, 2000])
def test_rows_touch_exactly_their_blocks(count: int) -> None:
    width = 8
    data = np.random.default_rng(1).bytes(64 * BLOCK)
    damaged = bytearray(data)
    damaged[40 * BLOCK + 17] ^= 1
    per_block = BLOCK // width
    bad = np.arange(40 * per_block, 41 * per_block)
    good = np.setdiff1d(np.arange(64 * per_block), bad)
    rng = np.random.default_rng(count)
    section = Section(reread(bytes(damaged), data), 0, len(data), width)
    section.touch_rows(rng.choice(good, count))
    with pytest.raises(CorruptionError):
        section.touch_rows(rng.choice(bad, 1))


def test_span_of_a_row_reaches_into_the_next_block() -> None:
    data = np.random.default_rng(1).bytes(64 * BLOCK)
    damaged = bytearray(data)
    damaged[BLOCK] ^= 1
    last = np.array([BLOCK // 8 - 1])
    blocks = reread(bytes(damaged), data)
    Section(blocks, 0, len(data), 8).touch_rows(last)
    with pytest.raises(CorruptionError):
        Section(blocks, 0, len(data), 8).touch_rows(last, span=2)


def test_empty_ranges_touch_nothing() -> None:
    data = np.random.default_rng(1).bytes(64 * BLOCK)
    section = Section(reread(bytes(64 * BLOCK), data), 0, len(data), 1)
    nothing = np.array([0, 500, 64 * BLOCK])
    section.touch_ranges(nothing, nothing)
    with pytest.raises(CorruptionError):
        section.touch_ranges(np.array([5]), np.array([6]))


@pytest.mark.parametrize(("start", "length"), [(-64, 10), (0, 129), (128, 1), (1, 10), (0, -1), (64, 65)])
def test_section_outside_of_the_data_is_refused(start: int, length: int) -> None:
    blocks = reread(bytes(128), bytes(128))
    with pytest.raises(ValueError, match="outside of the data"):
        Section(blocks, start, length, 1)
