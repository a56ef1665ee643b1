"""The probe of one run: which of many sorted hashes are in it, and at which rows.

Filter, directory, comparison, each over all probes at once. Hot keys are found by binary search in (hash, ts), never
by looking at each of their rows, and pairs come out in pieces of bounded size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from lsmstate.keys import I64, TS_MIN, U64
from lsmstate.native import kernel
from lsmstate.sstable.filters import bloom_masks, directory_bits
from lsmstate.sstable.order import Index
from lsmstate.sstable.reader import StoredRun
from lsmstate.sstable.run import Run

Before = Callable[[U64, I64], npt.NDArray[np.bool_]]
_FEW = 48  # probes that pass a run's filter, below which Python is quicker than numpy
_ROOM = 4096  # pairs that scratch is made for at least
_WIDE = 16  # rows of a slot beyond which a binary search is cheaper than comparing all


class _Scratch(threading.local):
    """Space of each thread, so that searching run after run allocates nothing large."""

    def __init__(self) -> None:
        self._arrays = [np.empty(0, np.int64)] * 2

    def arrays(self, size: int, count: int) -> list[Index]:
        """So many arrays of a size, which the next call may hand out again."""
        for number in range(count):
            if len(self._arrays[number]) < size:
                self._arrays[number] = np.empty(size, np.int64)
        return [array[:size] for array in self._arrays[:count]]


_scratch = _Scratch()


class Probes:
    """What is looked for: hashes in ascending order, and for each the first and last time that it accepts.

    Threading: several threads may search several runs for the same probes.
    """

    def __init__(self, hashes: U64, low_ts: I64, high_ts: I64) -> None:
        self.hashes, self.low_ts, self.high_ts = hashes, low_ts, high_ts
        self.latest_low, self.earliest_high = int(low_ts.max()), int(high_ts.min())
        self.asked = self.passed = 0  # of filters, so far
        self._counting = threading.Lock()
        self._masks = bloom_masks(hashes) if kernel is None else hashes[:0]

    def filtered(self, run: Run, first: int, last: int) -> Index:
        """Those from first to last that the run's filter does not exclude, counted from first."""
        found = self._filtered(run, first, last)
        with self._counting:
            self.asked += last - first
            self.passed += len(found)
        return found

    def _filtered(self, run: Run, first: int, last: int) -> Index:
        bloom, hashes = run.bloom(), self.hashes[first:last]
        if kernel is not None:
            (hits,) = _scratch.arrays(len(hashes), 1)
            return hits[: kernel.filter_hashes(bloom, hashes, *run.span.scale(len(bloom)), hits)].copy()
        words, found = (array.view(np.uint64) for array in _scratch.arrays(len(hashes), 2))
        masks = self._masks[first:last]
        at = run.span.spread(hashes, len(bloom), out=words)
        np.take(bloom, at, out=found, mode="clip")
        np.bitwise_and(found, masks, out=found)
        return np.flatnonzero(found == masks)


def search(run: Run, probes: Probes, pairs_max: int, since: int = TS_MIN) -> Iterator[tuple[Index, Index]]:
    """Pairs (index of a probe, row of the run) with equal hashes and an accepted time, at most `pairs_max` at once.

    Rows before `since` are passed over. The pieces may be asked for by different threads, one after the other.
    """
    first = int(probes.hashes.searchsorted(np.uint64(run.span.low), "left"))
    last = int(probes.hashes.searchsorted(np.uint64(run.span.high), "right"))
    if first == last:
        return
    hashes = probes.hashes[first:last]
    asked = probes.filtered(run, first, last)
    if not len(asked):
        return
    inside = run.ref.min_ts >= max(probes.latest_low, since) and run.ref.max_ts <= probes.earliest_high
    if kernel is not None and run.is_ready(len(asked)):
        asked += first
        yield from _matched(run, probes, asked, inside, pairs_max, since)
        return
    slots = run.span.spread(hashes[asked], 1 << directory_bits(run.ref.rows))
    asked += first
    if len(asked) <= _FEW and isinstance(run, StoredRun):
        few = _few(run, probes, asked, slots, None if inside else since, pairs_max)
        if few is not None:
            if len(few[0]):
                yield few
            return
    starts, ends = run.slot_rows(slots)
    wide = ends - starts > _WIDE
    if wide.any():
        at = asked[wide]
        low = _lower_bound(run, starts[wide], ends[wide], probes.hashes[at], np.maximum(probes.low_ts[at], since))
        high = _upper_bound(run, low, ends[wide], probes.hashes[at], probes.high_ts[at])
        for who, rows in _expanded(at, low, high, pairs_max):
            _check_found(run, probes, who, rows, inside, since)
            yield who, rows
        narrow = ~wide
        asked, starts, ends = asked[narrow], starts[narrow], ends[narrow]
    for who, rows in _expanded(asked, starts, ends, pairs_max):
        same = np.flatnonzero(run.hashes(rows) == probes.hashes[who])
        who, rows = who[same], rows[same]
        if len(rows) and not inside:
            good = np.flatnonzero(_accepted(run, probes, who, rows, since))
            if len(good) < len(rows):
                who, rows = who[good], rows[good]
        if len(rows):
            yield who, rows


def _matched(
    run: Run, probes: Probes, asked: Index, inside: bool, pairs_max: int, since: int
) -> Iterator[tuple[Index, Index]]:
    """The pairs of probes that pass the filter, by the kernel. Requires: the run is ready."""
    assert kernel is not None
    told = run.directory(), run.hashes(), None if inside else run.times()
    scale = run.span.scale(len(told[0]) - 1)
    position, row = 0, -1
    while position < len(asked):
        who, rows = _scratch.arrays(min(pairs_max, max(_ROOM, 2 * len(asked))), 2)
        count, position, row = kernel.match_rows(
            *told, probes.hashes, probes.low_ts, probes.high_ts, asked, *scale, since, position, row, who, rows
        )
        if count < 0:
            raise run.damaged_directory()
        if count:
            yield who[:count].copy(), rows[:count].copy()


def _few(
    run: StoredRun, probes: Probes, asked: Index, slots: I64, since: int | None, pairs_max: int
) -> tuple[Index, Index] | None:
    """The pairs of a few probes, one by one: below some dozens that is quicker than arrays. None if there are many.

    `since` is None where all rows of the run have a time that all probes accept.
    """
    found = run.find_few(slots.tolist(), probes.hashes[asked].tolist(), min(_WIDE, pairs_max // len(asked)))
    if found is None:
        return None
    at, rows = found
    if rows and since is not None:
        low, high, times = probes.low_ts[asked].tolist(), probes.high_ts[asked].tolist(), run.few_times(rows)
        good = [n for n, ts in enumerate(times) if since <= ts and low[at[n]] <= ts <= high[at[n]]]
        at, rows = [at[n] for n in good], [rows[n] for n in good]
    return asked[np.array(at, np.int64)], np.array(rows, np.int64)


def _expanded(who: Index, starts: I64, ends: I64, pairs_max: int) -> Iterator[tuple[Index, Index]]:
    """Every row from start to end with its probe, cut into pieces."""
    widths = ends - starts
    total = np.cumsum(widths)
    pairs = int(total[-1]) if len(total) else 0
    before = total - widths
    for low in range(0, pairs, pairs_max):
        high = min(low + pairs_max, pairs)
        a, b = int(np.searchsorted(total, low, "right")), int(np.searchsorted(total, high, "left")) + 1
        count = np.minimum(total[a:b], high) - np.maximum(before[a:b], low)
        base = np.repeat(starts[a:b] - before[a:b], count)
        yield np.repeat(who[a:b], count), base + np.arange(low, high)


def _accepted(run: Run, probes: Probes, who: Index, rows: I64, since: int) -> npt.NDArray[np.bool_]:
    """Which pairs have a time that the probe accepts."""
    ts = run.times(rows)
    found: npt.NDArray[np.bool_] = (ts >= since) & (ts >= probes.low_ts[who]) & (ts <= probes.high_ts[who])
    return found


def _check_found(run: Run, probes: Probes, who: Index, rows: I64, inside: bool, since: int) -> None:
    """Raises CorruptionError if a binary search has led elsewhere, which it does where rows are not in order."""
    good = bool((run.hashes(rows) == probes.hashes[who]).all())
    if good and not inside:
        good = bool(_accepted(run, probes, who, rows, since).all())
    if not good:
        raise run.damaged_directory()


def _lower_bound(run: Run, low: I64, high: I64, hashes: U64, ts: I64) -> I64:
    """The first row from low to high that is not before (hash, ts)."""
    return _bisect(run, low, high, lambda h, t: (h < hashes) | ((h == hashes) & (t < ts)))


def _upper_bound(run: Run, low: I64, high: I64, hashes: U64, ts: I64) -> I64:
    """The first row from low to high that is after (hash, ts)."""
    return _bisect(run, low, high, lambda h, t: (h < hashes) | ((h == hashes) & (t <= ts)))


def _bisect(run: Run, low: I64, high: I64, before: Before) -> I64:
    low, high = low.copy(), high.copy()
    last = run.ref.rows - 1
    while bool((low < high).any()):
        middle = (low + high) >> 1
        rows = np.minimum(middle, last)
        goes_up = before(run.hashes(rows), run.times(rows)) & (low < high)
        low = np.where(goes_up, middle + 1, low)
        high = np.where(goes_up, high, np.maximum(middle, low))
    return low
