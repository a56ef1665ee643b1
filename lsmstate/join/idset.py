"""A set of row ids as a bitmap in pages: a bit for each id, and nothing for pages without one.

Ids are given out in order, so those of a living state lie close together, but for a few old rows with far times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lsmstate.keys import I64, U64

_PAGE_BITS = 12  # ids of a page
_PAGE_BYTES = 1 << (_PAGE_BITS - 3)
_NEAR = 1 << 16  # pages between the first and the last one, up to which they are counted without sorting


class IdSet:
    """Grows only. Belongs to one thread."""

    def __init__(self) -> None:
        self._numbers = np.empty(0, np.uint64)  # of the pages, ascending
        self._slots = np.empty(0, np.int64)  # where each of them lies
        self._bytes = np.zeros(0, np.uint8)

    def __len__(self) -> int:
        """How many pages there are."""
        return len(self._numbers)

    def add(self, ids: U64) -> None:
        """Adds ids, in any order."""
        if len(ids):
            pages = ids >> np.uint64(_PAGE_BITS)
            self._make(_distinct(pages))
            at = self._at(ids, self._slots[np.searchsorted(self._numbers, pages)])
            np.bitwise_or.at(self._bytes, at, _bits(ids))

    def has(self, ids: U64) -> npt.NDArray[np.bool_]:
        """Which ids are in it."""
        if not len(self._numbers) or not len(ids):
            return np.zeros(len(ids), bool)
        pages = ids >> np.uint64(_PAGE_BITS)
        where = np.minimum(np.searchsorted(self._numbers, pages), len(self._numbers) - 1)
        found: npt.NDArray[np.bool_] = (self._bytes[self._at(ids, self._slots[where])] & _bits(ids)) != 0
        found &= self._numbers[where] == pages
        return found

    def _make(self, pages: U64) -> None:
        new = pages[~np.isin(pages, self._numbers)]
        if not len(new):
            return
        first = len(self._numbers)
        room = (first + len(new)) * _PAGE_BYTES
        if room > len(self._bytes):
            larger = np.zeros(2 * room, np.uint8)
            larger[: len(self._bytes)] = self._bytes
            self._bytes = larger
        numbers = np.concatenate([self._numbers, new])
        slots = np.concatenate([self._slots, np.arange(first, first + len(new))])
        order = np.argsort(numbers)
        self._numbers, self._slots = numbers[order], slots[order]

    @staticmethod
    def _at(ids: U64, slots: I64) -> I64:
        inside = (ids & np.uint64((1 << _PAGE_BITS) - 1)) >> np.uint64(3)
        return slots * _PAGE_BYTES + inside.astype(np.int64)


def _bits(ids: U64) -> npt.NDArray[np.uint8]:
    return np.left_shift(np.uint8(1), (ids & np.uint64(7)).astype(np.uint8))


def _distinct(pages: U64) -> U64:
    low = int(pages.min())
    if int(pages.max()) - low >= _NEAR:
        return np.unique(pages)
    seen = np.bincount((pages - np.uint64(low)).astype(np.int64))
    return np.flatnonzero(seen).astype(np.uint64) + np.uint64(low)
