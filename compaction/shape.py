"""The shape of a tree: what the picker knows of files and runs, and what it decides. Plain values, no files.

Time is counted in **units**: as many neighbouring buckets as age together, a sixteenth of the retention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunShape:
    """What is read of one run: its side, its first and last unit of time (0 where the side has none), its rows."""

    side: int
    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class FileShape:
    """One file: what is read of it, its size when it was written, whether removed rows may be left in it, and about
    which share of what is read of it is retired."""

    name: str
    size_bytes: int
    runs: tuple[RunShape, ...]
    has_removed: bool = False
    dead_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Horizon:
    """Where one side stands in time: its first living unit, and the first that can still get rows.

    Units before `live` are dead as a whole. Those from `live` to `unsettled` (not included) are settled: they get no
    more rows, unless late ones, and end as one file each.
    """

    live: int
    unsettled: int


@dataclass(frozen=True, slots=True)
class Tree:
    """All files of a version, the horizon of every side (None where rows never age), and the most rows of a run."""

    files: Sequence[FileShape]
    horizons: Sequence[Horizon | None]
    rows_max: int = 1 << 22

    def runs(self, side: int) -> int:
        """How many runs of a side a probe has to look into."""
        return sum(run.side == side for file in self.files for run in file.runs)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to merge. With a side and a unit: that unit of all runs that hold a part of it, into a file of its own, and
    the runs keep their later units. Without: all runs of some files, into one file."""

    why: str
    files: tuple[str, ...]
    side: int | None = None
    unit: int | None = None
