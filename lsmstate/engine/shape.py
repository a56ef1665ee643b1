"""A version as the picker sees it: files and runs in units of time, without opening any of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compaction import FileShape, Horizon, RunShape, Tree, pick, unit_width
from lsmstate.manifest.version import Version
from lsmstate.refs import FileRef
from lsmstate.schema import Side

_RUN_ROWS_MAX = 4 << 20
_RUN_BYTES_MAX = 512 << 20


class Shapes:
    """The shapes of the versions of a state, one after the other: what is known of a file is kept for the next one.

    Threading: any thread; what two work out at once is the same.
    """

    def __init__(self, sides: Sequence[Side]) -> None:
        self._sides = sides
        self._known: dict[str, tuple[FileRef, tuple[RunShape, ...]]] = {}

    def tree_of(self, version: Version, without: Collection[str] = ()) -> Tree:
        """The shape of a version, without some of its files."""
        known, now = self._known, {}
        files = []
        for name, ref in version.files.items():
            told = known.get(name)
            now[name] = told = told if told is not None and told[0] is ref else (ref, _shapes(ref, self._sides))
            if name not in without:
                killed = any(t.can_kill(ref) for t in version.tombstones)
                dead = _dead_share(version, self._sides, ref)
                files.append(FileShape(name, ref.size_bytes, told[1], killed, dead))
        self._known = now
        return Tree(files, [_horizon(version, side) for side in self._sides], rows_max(version))


def next_merge(version: Version, sides: Sequence[Side]) -> tuple[str, int] | None:
    """Why something should be merged now, and how many rows would be read for it; None if all is well."""
    choice = pick(Shapes(sides).tree_of(version))
    if choice is None:
        return None
    runs = [run for name in choice.files for run in version.files[name].live if choice.side in (None, run.side)]
    return choice.why, sum(run.rows for run in runs)


def _shapes(ref: FileRef, sides: Sequence[Side]) -> tuple[RunShape, ...]:
    shapes = []
    for part in ref.live:
        width = unit_us(sides[part.side])
        first, last = (part.min_ts // width, part.max_ts // width) if width else (0, 0)
        shapes.append(RunShape(part.side, first, last, part.rows))
    return tuple(shapes)


def unit_us(side: Side) -> int:
    """The width of a unit of time; 0 where rows never age."""
    return 0 if side.retention_us is None else unit_width(side.retention_us, side.bucket_us)


def _horizon(version: Version, side: Side) -> Horizon | None:
    if side.retention_us is None or version.watermark is None:
        return None
    width = unit_us(side)
    return Horizon((version.watermark - side.retention_us + 1) // width, (version.watermark + 1) // width)


def _dead_share(version: Version, sides: Sequence[Side], ref: FileRef) -> float:
    """About which share of a file's rows is retired, as if their times were spread evenly."""
    dead, rows, watermark = 0.0, 0, version.watermark
    for part in ref.parts:
        if part is None:
            continue
        rows += part.rows
        retention = sides[part.side].retention_us
        if watermark is not None and retention is not None and watermark - retention >= part.min_ts:
            span = part.max_ts - part.min_ts + 1
            dead += part.rows * min(1.0, (watermark - retention + 1 - part.min_ts) / span)
    return dead / max(rows, 1)


def rows_max(version: Version) -> int:
    """How many rows a run may have: so many that their strings surely fit into one column."""
    rows = sum(run.rows for ref in version.files.values() for run in ref.runs)
    size = sum(ref.size_bytes for ref in version.files.values())
    return max(1, min(_RUN_ROWS_MAX, _RUN_BYTES_MAX * max(rows, 1) // max(size, 1)))
