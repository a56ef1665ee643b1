"""What the manifest knows of a file without opening it: its identity, and the bounds of its runs.

Named tuples, because a state of many files makes thousands of them when it is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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
    """One SSTable: its name, its size, the digest of its footer (which covers all of it), and its runs in key order."""

    name: str
    size_bytes: int
    digest: str
    runs: tuple[RunRef, ...]


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Kills the rows of `side` with start_ts <= ts < end_ts that are older than `id`."""

    side: int
    start_ts: int
    end_ts: int
    id: int


def with_tombstone(tombstones: tuple[Tombstone, ...], new: Tombstone) -> tuple[Tombstone, ...]:
    """One more tombstone; joined with the last one where they touch and nothing was written between them."""
    if tombstones:
        last = tombstones[-1]
        touch = last.start_ts <= new.end_ts and new.start_ts <= last.end_ts
        if last.side == new.side and last.id == new.id - 1 and touch:
            joined = Tombstone(new.side, min(last.start_ts, new.start_ts), max(last.end_ts, new.end_ts), new.id)
            return (*tombstones[:-1], joined)
    return (*tombstones, new)
