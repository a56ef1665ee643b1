"""A set of row ids as a bitmap in pages: a bit for each id, and nothing for pages without one.

Ids are given out in order, so those of a living state lie close together, but for a few old rows with far times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lsmstate.keys import I64, U64

_PAGE_BITS = 12  # ids of a page
_PAGE_BYTES = 1 << (_PAGE_BITS - 3)
_NEAR = 1 << 16  # pages between the first and the last one, up to which they are looked up without searching


class IdSet:
    """Grows only. Belongs to one thread."""

    def __init__(self) -> None:
        self._numbers = np.empty(0, np.uint64)  # of the pages, ascending
        self._slots = np.empty(0, np.int64)  # where each of them lies
        self._table: I64 | None = (
            None  # the same from the first page to the last, -1 between; None if they lie far apart
        )
        self._bytes = np.zeros(0, np.uint8)

    def __len__(self) -> int:
        """How many pages there are."""
        return len(self._numbers)

    def add(self, ids: U64) -> None:
        """Adds ids, in any order."""
        if len(ids):
            pages = ids >> np.uint64(_PAGE_BITS)
            self._make(_distinct(pages))
            np.bitwise_or.at(self._bytes, self._at(ids, self._slots_of(pages)), _bits(ids))

    def has(self, ids: U64) -> npt.NDArray[np.bool_]:
        """Which ids are in it."""
        if not len(self._numbers) or not len(ids):
            return np.zeros(len(ids), bool)
        slots = self._slots_of(ids >> np.uint64(_PAGE_BITS))
        found: npt.NDArray[np.bool_] = (self._bytes[self._at(ids, slots)] & _bits(ids)) != 0
        found &= slots >= 0
        return found

    def _slots_of(self, pages: U64) -> I64:
        """Where pages lie; -1 for those that do not exist. Requires: there is one."""
        if self._table is not None:
            steps = pages - self._numbers[0]  # from a page before the first one these are far too many
            slots = self._table[np.minimum(steps, np.uint64(len(self._table) - 1)).astype(np.int64)]
            return np.where(steps < len(self._table), slots, -1)
        where = np.minimum(np.searchsorted(self._numbers, pages), len(self._numbers) - 1)
        return np.where(self._numbers[where] == pages, self._slots[where], -1)

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
        self._table = None
        if int(self._numbers[-1] - self._numbers[0]) < _NEAR:
            steps = (self._numbers - self._numbers[0]).astype(np.int64)
            self._table = np.full(int(steps[-1]) + 1, -1)
            self._table[steps] = self._slots

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
