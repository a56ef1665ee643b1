"""What the manifest knows of a file without opening it: its identity, and the bounds of its runs.

Named tuples, because a state of many files makes thousands of them when it is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lsmstate.keys import TS_MAX, TS_MIN

ROWS_MAX = (1 << 32) - 1  # of a run: its directory counts in 32 bits
ID_MAX = (1 << 63) - 1


class RunRef(NamedTuple):
    """The bounds of one run: enough to decide whether a reader needs it."""

    side: int
    first_bucket: int
    last_bucket: int
    rows: int
    min_ts: int
    max_ts: int
    min_id: int
    max_id: int


class FileRef(NamedTuple):
    """One SSTable: its name, its size, the digest of its footer (which covers all of it), and its runs in key order.

    left: what a version still reads of each run, where compaction has taken the older buckets out of some: a run
    narrowed to the later ones, or None. Without it, all. folded: tombstones with smaller ids kill nothing in it.
    """

    name: str
    size_bytes: int
    digest: str
    runs: tuple[RunRef, ...]
    left: tuple[RunRef | None, ...] | None = None
    folded: int = 0

    @property
    def parts(self) -> tuple[RunRef | None, ...]:
        """What is read of each run."""
        return self.runs if self.left is None else self.left

    @property
    def live(self) -> list[RunRef]:
        """What is read of the file."""
        return [part for part in self.parts if part is not None]


def check_run(run: RunRef) -> None:
    """Raises ValueError for bounds that no run can have: what is computed from others stays within 64 bits."""
    side, first, last, rows, min_ts, max_ts, min_id, max_id = run
    if not (
        0 <= side <= 255
        and TS_MIN <= first <= last <= TS_MAX
        and TS_MIN <= min_ts <= max_ts <= TS_MAX
        and 1 <= rows <= ROWS_MAX
        and 0 <= min_id <= max_id <= ID_MAX
    ):
        raise ValueError("a run with bounds that cannot be")


def narrowed(run: RunRef, first_bucket: int, min_ts: int, rows: int) -> RunRef | None:
    """What is left of a run once its rows before `min_ts`, the start of a bucket, are elsewhere; None if nothing is."""
    if not rows:
        return None
    return run._replace(first_bucket=max(run.first_bucket, first_bucket), min_ts=max(run.min_ts, min_ts), rows=rows)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Kills the rows of `side` with start_ts <= ts < end_ts that are older than `id`."""

    side: int
    start_ts: int
    end_ts: int
    id: int

    def can_kill(self, file: FileRef) -> bool:
        """Whether a file may hold rows that it kills."""
        return self.id >= file.folded and any(
            run.side == self.side and run.min_id < self.id and run.min_ts < self.end_ts and run.max_ts >= self.start_ts
            for run in file.live
        )

    def covers(self, other: Tombstone) -> bool:
        """Whether it kills all that another one kills."""
        return (
            self.side == other.side
            and self.start_ts <= other.start_ts
            and self.end_ts >= other.end_ts
            and self.id >= other.id
        )


def with_tombstone(tombstones: tuple[Tombstone, ...], new: Tombstone) -> tuple[Tombstone, ...]:
    """One more tombstone; joined with the last one where they touch and nothing was written between them."""
    if tombstones:
        last = tombstones[-1]
        touch = last.start_ts <= new.end_ts and new.start_ts <= last.end_ts
        if last.side == new.side and last.id == new.id - 1 and touch:
            joined = Tombstone(new.side, min(last.start_ts, new.start_ts), max(last.end_ts, new.end_ts), new.id)
            return (*tombstones[:-1], joined)
    return (*tombstones, new)
