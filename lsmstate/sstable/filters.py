"""Three ways not to read: a blocked bloom filter and a radix directory over row hashes, and a filter over keys.

The hashes of a run are sorted, and a state partition holds one range of all hashes, so filter words and directory
slots are spread over the range between a run's smallest and largest hash, in ascending order: sorted probes walk
them forwards.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import mmh3
import numpy as np
import numpy.typing as npt
from pybloom_live import BloomFilter

from lsmstate.errors import CorruptionError
from lsmstate.keys import U64
from lsmstate.native import kernel

_BITS_PER_KEY = 12
_PART_ROWS = 128 << 10
BLOOM_K = 4  # bits of a hash in its filter word
KEY_FILTER_MAX = 1024  # keys; beyond that a filter costs more to build than it saves
_KEY_FILTER_ERROR = 0.01
_KEY_FILTER_HEADER = struct.Struct("<dQQQQ")  # error rate, slices, bits of each, capacity, count
_u = np.uint64


@dataclass(frozen=True, slots=True)
class Span:
    """The range of hashes that a run holds."""

    low: int
    high: int

    def spread(self, hashes: U64, count: int, out: U64 | None = None) -> npt.NDArray[np.intp]:
        """Which of `count` parts of the range each hash falls into. Requires: low <= hash <= high, count < 2 ** 31.

        32 bits of the distance from the low end, times a factor that maps the whole range onto the parts.
        """
        low, shift, factor = self.scale(count)
        scaled = np.subtract(hashes, _u(low), out=out)
        scaled >>= _u(shift)
        scaled *= _u(factor)
        scaled >>= _u(32)
        return scaled.view(np.int64)

    def scale(self, count: int) -> tuple[int, int, int]:
        """How `spread` reckons: the low end, how many bits of the distance are dropped, and the factor."""
        width = self.high - self.low
        shift = max(0, width.bit_length() - 32)
        return self.low, shift, (count << 32) // ((width >> shift) + 1)


def bloom_masks(hashes: U64) -> U64:
    """The bits of each hash in its filter word; the same for every run."""
    masks: U64 = np.left_shift(_u(1), hashes & _u(63))
    bits = np.empty_like(masks)
    for i in range(1, BLOOM_K):
        np.right_shift(hashes, _u(6 * i), out=bits)
        np.bitwise_and(bits, _u(63), out=bits)
        np.left_shift(_u(1), bits, out=bits)
        np.bitwise_or(masks, bits, out=masks)
    return masks


def build_bloom(hashes: U64, span: Span) -> U64:
    """A filter over sorted hashes. Requires: at least one hash."""
    filter_words = np.zeros(max(1, len(hashes) * _BITS_PER_KEY // 64), np.uint64)
    if kernel is not None:
        kernel.build_bloom(hashes, *span.scale(len(filter_words)), filter_words)
        return filter_words
    for part in _parts(hashes):
        at = span.spread(part, len(filter_words))
        starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        filter_words[at[starts]] |= np.bitwise_or.reduceat(bloom_masks(part), starts)
    return filter_words


def _parts(hashes: U64) -> Iterator[U64]:
    """The hashes piece by piece: what is computed of them at once stays small, and in the caches."""
    for start in range(0, len(hashes), _PART_ROWS):
        yield hashes[start : start + _PART_ROWS]


def directory_bits(rows: int) -> int:
    """How many bits of the hash choose a slot, so that a slot holds one or two rows."""
    return max(1, rows.bit_length() - 1)


def build_directory(hashes: U64, span: Span) -> npt.NDArray[np.uint32]:
    """`directory[s] : directory[s + 1]` are the rows of slot s. Requires: sorted hashes, at least one."""
    bits = directory_bits(len(hashes))
    directory = np.zeros((1 << bits) + 1, np.uint32)
    if kernel is not None:
        kernel.build_directory(hashes, *span.scale(1 << bits), directory)
        return directory
    for part in _parts(hashes):
        slots = span.spread(part, 1 << bits)
        first, last = int(slots[0]), int(slots[-1])
        directory[first + 1 : last + 2] += np.bincount(slots - first, minlength=last - first + 1).astype(np.uint32)
    np.cumsum(directory, out=directory)
    return directory


def build_key_filter(keys: Iterable[bytes]) -> bytes:
    """A pybloom-live filter over the keys of one SSTable; nothing for no keys."""
    distinct = set(keys)
    if not distinct:
        return b""
    bloom = BloomFilter(len(distinct), _KEY_FILTER_ERROR)
    for key in distinct:
        bloom.add(_hash_key(key), skip_check=True)
    out = io.BytesIO()
    bloom.tofile(out)
    return out.getvalue()


class KeyFilter:
    """Whether an SSTable may hold rows of a key. Parsed when first asked."""

    def __init__(self, path: str, data: memoryview) -> None:
        self._path, self._data = path, data
        self._bloom: BloomFilter | None = None

    @property
    def exists(self) -> bool:
        """False where the file holds too many keys for a filter."""
        return len(self._data) > 0

    @property
    def keys(self) -> int:
        """How many keys were put in."""
        return int(self._parsed().count) if self.exists else 0

    @property
    def error_rate(self) -> float:
        """The share of false answers that it was built for."""
        return float(self._parsed().error_rate) if self.exists else 1.0

    def may_contain(self, keys: Iterable[bytes]) -> bool:
        """False only if the file holds none of the keys."""
        return not self.exists or any(_hash_key(key) in self._parsed() for key in keys)

    def _parsed(self) -> BloomFilter:
        if self._bloom is None:
            if not _is_key_filter(self._data):
                raise CorruptionError(self._path, 0, "a key filter", "one whose size is wrong")
            self._bloom = BloomFilter.fromfile(io.BytesIO(self._data), len(self._data))
        return self._bloom


def _is_key_filter(data: memoryview) -> bool:
    """Whether the header can be one, and tells the size that the filter has."""
    if len(data) < _KEY_FILTER_HEADER.size:
        return False
    rate, slices, bits, _, _ = _KEY_FILTER_HEADER.unpack_from(data)
    fits: bool = -(-slices * bits // 8) == len(data) - _KEY_FILTER_HEADER.size
    return fits and 0 < rate < 1 and 1 <= slices <= 64 and bits >= 1


def _hash_key(key: bytes) -> int:
    return mmh3.hash64(key, signed=False)[0]
