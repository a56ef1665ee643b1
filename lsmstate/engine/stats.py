"""Statistics of a store, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iopool import LaneMetrics
from lsmstate.engine.compactor import CompactionStats

if TYPE_CHECKING:
    from lsmstate.engine.core import Core


@dataclass(frozen=True, slots=True)
class SideStats:
    """One side: rows in files and in memory (dead ones included until they are compacted away), and runs to probe."""

    name: str
    rows: int
    runs: int
    min_ts: int | None
    max_ts: int | None


@dataclass(frozen=True, slots=True)
class Stats:
    """A store at one moment."""

    epoch: int
    line: int
    watermark: int | None
    next_id: int
    sides: tuple[SideStats, ...]
    files: int
    file_bytes: int
    memtable_bytes: int
    memtable_rows: int
    sealed_memtables: int
    tombstones: int
    retained_epochs: int
    open_files: int
    files_collected: int
    collection_error: str | None
    lanes: dict[str, LaneMetrics]
    compaction: CompactionStats


def collect_stats(core: Core) -> Stats:
    """The numbers of this moment."""
    with core.swap_lock:
        version, head = core.working, core.head
        memtables = [*(s.memtable for s in core.sealed), core.memtable]
        pieces = [piece for memtable in memtables for piece in memtable.pieces()]
        sealed = len(core.sealed)
    refs = version.parts() + [piece.ref for piece in pieces]
    sides = []
    for number, side in enumerate(core.sides):
        mine = [ref for ref in refs if ref.side == number]
        sides.append(
            SideStats(
                side.name,
                sum(ref.rows for ref in mine),
                len(mine),
                min((ref.min_ts for ref in mine), default=None),
                max((ref.max_ts for ref in mine), default=None),
            )
        )
    return Stats(
        head.version.epoch,
        head.version.line,
        version.watermark,
        version.next_id,
        tuple(sides),
        len(version.files),
        sum(ref.size_bytes for ref in version.files.values()),
        sum(memtable.size_bytes for memtable in memtables),
        sum(memtable.rows for memtable in memtables),
        sealed,
        len(version.tombstones),
        len(head.version.history) + (head.manifest is not None),
        len(core.cache),
        core.collector.files_removed,
        core.collector.last_error,
        {str(name): lane for name, lane in core.pool.metrics().items()},
        replace(core.compactor.counters),
    )
