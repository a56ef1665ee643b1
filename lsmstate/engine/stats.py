"""Statistics of a store, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iopool import LaneMetrics
from lsmstate.engine.compactor import CompactionStats
from lsmstate.engine.probe_stats import ProbeStats
from lsmstate.engine.wal_replay import log_bytes

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
    """A store at one moment.

    stored_rows: rows in its files, of which compaction has taken some into other files. debt_rows: rows that the next
    merge would read. flushed_bytes: what this handle has flushed. log_bytes: of the write-ahead log, what no epoch
    holds yet.
    """

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
    probes: ProbeStats
    stored_rows: int
    debt_rows: int
    flushed_bytes: int
    log_bytes: int

    @property
    def write_amplification(self) -> float:
        """Bytes written by flushes and merges of this handle, for each byte flushed."""
        return 1.0 + self.compaction.bytes_written / self.flushed_bytes if self.flushed_bytes else 1.0

    @property
    def space_amplification(self) -> float:
        """Rows in the files of the present version for each row that is read of them."""
        rows = sum(side.rows for side in self.sides) - self.memtable_rows
        return self.stored_rows / rows if rows else 1.0

    @property
    def read_amplification(self) -> int:
        """The most runs that a probe of a side looks into."""
        return max(side.runs for side in self.sides)


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
        replace(core.probes),
        sum(run.rows for ref in version.files.values() for run in ref.runs),
        core.compactor.debt_rows(),
        core.flushed_bytes,
        log_bytes(core),
    )
