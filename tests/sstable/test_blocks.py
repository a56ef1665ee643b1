"""Blocks: every byte that is read was summed, and a sum belongs to one place of one file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmstate import CorruptionError
from lsmstate.sstable.blocks import Blocks, Place, Section
from lsmstate.sstable.format import ALIGN, BLOCK, uid_of
from tests.support.block_file import UID, BlockFile

LARGE_BLOCKS = 512  # so large that a few rows do not make it worth verifying whole


def written(sections: Sequence[bytes]) -> tuple[bytes, list[Place], Blocks]:
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


def flipped(data: bytes, at: int) -> bytes:
    """The same bytes but for one bit."""
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def section_over(data: bytes, like: bytes, width: int) -> Section:
    """A section over other bytes than were summed."""
    _, (place,), _ = written([like])
    return Section(reread(data, like), place, width)


sizes = st.one_of(
    st.integers(0, 200), st.sampled_from([BLOCK - 64, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 7])
)


@given(st.lists(sizes, max_size=6))
def test_sections_are_aligned_and_read_back(lengths: list[int]) -> None:
    sections = [bytes([n + 1]) * length for n, length in enumerate(lengths)]
    data, places, blocks = written(sections)
    assert len(data) % ALIGN == 0
    for section, place in zip(sections, places, strict=True):
        start, length, _ = place
        assert start % ALIGN == 0
        assert data[start : start + length] == section
        Section(blocks, place, 1).touch()
    assert blocks.bad_blocks() == []


def test_sums_do_not_depend_on_how_the_data_was_cut() -> None:
    data = np.random.default_rng(1).bytes(5 * BLOCK + 640)
    cuts = [0, 64, BLOCK - 64, BLOCK, 3 * BLOCK + 128, len(data)]
    parts = [data[start:end] for start, end in pairwise(cuts)]
    assert sums_of(data) == sums_of(*parts)


@pytest.mark.parametrize("at", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 5, 3 * BLOCK + 63])
def test_flipped_bit_is_seen_when_its_block_is_needed(at: int) -> None:
    data = np.random.default_rng(1).bytes(3 * BLOCK + 64)
    blocks = reread(flipped(data, at), data)
    block = at // BLOCK
    blocks.need([number * BLOCK for number in range(4) if number != block], 1)
    blocks.need_ranges([(0, block * BLOCK), ((block + 1) * BLOCK, len(data))])
    for _ in range(2):
        with pytest.raises(CorruptionError) as error:
            blocks.need([at], 1)
        assert error.value.offset == block * BLOCK
        with pytest.raises(CorruptionError):
            blocks.need_ranges([(0, len(data))])
    assert blocks.bad_blocks() == [block]


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 3 * BLOCK + 63])
def test_flipped_bit_is_seen_when_its_section_is_touched(at: int) -> None:
    data = np.random.default_rng(1).bytes(3 * BLOCK + 64)
    section = section_over(flipped(data, at), data, 1)
    for _ in range(2):
        with pytest.raises(CorruptionError, match="section checksum"):
            section.touch()
        assert not section.good


def test_section_in_another_place_or_file_is_seen() -> None:
    one, other = np.random.default_rng(1).bytes(128), np.random.default_rng(2).bytes(128)
    data, (first, second), blocks = written([one, other])
    with pytest.raises(CorruptionError):
        Section(blocks, (second[0], second[1], first[2]), 1).touch()
    _, places, swapped = written([other, one])
    with pytest.raises(CorruptionError):
        Section(swapped, (places[1][0], 128, first[2]), 1).touch()
    elsewhere = Blocks("f", uid_of("other.sst"), memoryview(data), np.array(sums_of(one, other), np.uint64))
    with pytest.raises(CorruptionError):
        Section(elsewhere, first, 1).touch()


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


@pytest.mark.parametrize("count", [1, 5, 31, 32, 33, 60])
def test_rows_of_a_large_section_touch_exactly_their_blocks(count: int) -> None:
    width, per_block = 8, BLOCK // 8
    data = np.random.default_rng(1).bytes(LARGE_BLOCKS * BLOCK)
    bad = np.arange(40 * per_block, 41 * per_block)
    good = np.setdiff1d(np.arange(LARGE_BLOCKS * per_block), bad)
    rng = np.random.default_rng(count)
    section = section_over(flipped(data, 40 * BLOCK + 17), data, width)
    section.touch_rows(rng.choice(good, count))
    with pytest.raises(CorruptionError):
        section.touch_rows(rng.choice(bad, 1))


def test_rows_of_a_small_section_touch_all_of_it() -> None:
    data = np.random.default_rng(1).bytes(8 * BLOCK)
    section = section_over(flipped(data, 7 * BLOCK), data, 8)
    with pytest.raises(CorruptionError):
        section.touch_rows(np.array([0]))


def test_span_of_a_row_reaches_into_the_next_block() -> None:
    data = np.random.default_rng(1).bytes(LARGE_BLOCKS * BLOCK)
    last = np.array([BLOCK // 8 - 1])
    section_over(flipped(data, BLOCK), data, 8).touch_rows(last)
    with pytest.raises(CorruptionError):
        section_over(flipped(data, BLOCK), data, 8).touch_rows(last, span=2)


@pytest.mark.parametrize("count", [3, 100])
def test_empty_ranges_touch_nothing(count: int) -> None:
    data = np.random.default_rng(1).bytes(LARGE_BLOCKS * BLOCK)
    section = section_over(bytes(len(data)), data, 1)
    nothing = np.linspace(0, len(data), count).astype(np.int64)
    section.touch_ranges(nothing, nothing)
    with pytest.raises(CorruptionError):
        section.touch_ranges(np.array([5]), np.array([6]))


@pytest.mark.parametrize("count", [1, 100])
def test_range_over_many_blocks_touches_those_in_the_middle(count: int) -> None:
    data = np.random.default_rng(1).bytes(LARGE_BLOCKS * BLOCK)
    section = section_over(flipped(data, 5 * BLOCK), data, 1)
    starts = np.full(count, 3 * BLOCK)
    section.touch_ranges(starts[:1], starts[:1] + BLOCK)
    with pytest.raises(CorruptionError):
        section.touch_ranges(starts, starts + np.where(np.arange(count) == 0, 4 * BLOCK, 1))


@pytest.mark.parametrize(("start", "length"), [(-64, 10), (0, 129), (128, 1), (1, 10), (0, -1), (64, 65)])
def test_section_outside_of_the_data_is_refused(start: int, length: int) -> None:
    blocks = reread(bytes(128), bytes(128))
    with pytest.raises(ValueError, match="outside of the data"):
        Section(blocks, (start, length, 0), 1)
