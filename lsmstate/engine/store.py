"""The store: the public face of the engine.

    store = StateStore.open(path, sides=[impressions, clicks])
    store.append(0, batch)                  # write
    for rows in store.probe(0, batch): ...  # ask
    store.snapshot_epoch(1)                 # make it durable, atomically

Threading: any thread may call anything. Writers take turns; readers never wait for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from iopool import FileSystem, LocalFileSystem, MemoryController, WorkerPool
from lsmstate.engine import branch, epochs, garbage, writes
from lsmstate.engine.compactor import Progress
from lsmstate.engine.core import Core, Start
from lsmstate.engine.identity import find_identity, path_text, settled
from lsmstate.engine.intake import Batch
from lsmstate.engine.poison import PoisonableFileSystem
from lsmstate.engine.stats import Stats, collect_stats
from lsmstate.engine.verify import Problem, verify
from lsmstate.engine.verify import Progress as VerifyProgress
from lsmstate.engine.view import View
from lsmstate.engine.wal_replay import check_durability, recover, taken_log
from lsmstate.manifest import names
from lsmstate.options import Options
from lsmstate.refs import FileRef
from lsmstate.schema import Side
from lsmstate.sstable.cache import FileCache

_CLOSE_SECONDS = 30.0


class StateStore:
    """An open state. Get one with `open`, close it, or use it in a `with`."""

    def __init__(self, core: Core, *, owns_pool: bool) -> None:
        self._core = core
        self._owns_pool = owns_pool

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        sides: Sequence[Side] | None = None,
        options: Options | None = None,
        *,
        read_only: bool = False,
        fs: FileSystem | None = None,
        pool: WorkerPool | None = None,
        cache: FileCache | None = None,
        memory: MemoryController | None = None,
        attempt: str | None = None,
    ) -> StateStore:
        """Opens a state at its last committed epoch, or creates it.

        `sides` may be left out for a state that exists. A read-only handle changes nothing but its own pin.
        `fs`, `pool`, `cache` and `memory` let several stores of a process share theirs: with `memory`, appends wait
        when all together hold too much. `attempt` names this handle's files.
        """
        return cls._opened(path, sides, options, read_only, fs, pool, cache, memory, attempt, None)

    @classmethod
    def open_candidate(
        cls,
        path: str | os.PathLike[str],
        candidate: str | None,
        sides: Sequence[Side],
        options: Options | None = None,
        *,
        line: int = 1,
        read_only: bool = False,
        fs: FileSystem | None = None,
        pool: WorkerPool | None = None,
        cache: FileCache | None = None,
        attempt: str | None = None,
    ) -> StateStore:
        """Opens a state at a candidate that `prepare` has named, or empty: for coordinators that choose by themselves.

        Such a handle prepares further candidates on its line; it neither commits nor restores. Only one that starts
        empty, to write, creates a state where there is none."""
        return cls._opened(path, sides, options, read_only, fs, pool, cache, None, attempt, Start(candidate, line))

    @classmethod
    def _opened(
        cls,
        path: str | os.PathLike[str],
        sides: Sequence[Side] | None,
        options: Options | None,
        read_only: bool,
        fs: FileSystem | None,
        pool: WorkerPool | None,
        cache: FileCache | None,
        memory: MemoryController | None,
        attempt: str | None,
        start: Start | None,
    ) -> StateStore:
        options = options or Options()
        disk = PoisonableFileSystem(fs or LocalFileSystem(group_access=options.group_access))
        path = disk.resolve(path_text(path))
        handle = names.new_attempt() if attempt is None else names.checked_attempt(attempt)
        check_durability(options, detached=start is not None)
        identity = find_identity(disk, path, sides, read_only, None if start is None else start.candidate)
        shared = WorkerPool() if pool is None else pool
        files = FileCache() if cache is None else cache
        with taken_log(disk, path, identity, options, handle, read_only, start is not None) as wal:
            core = Core(disk, path, identity, options, shared, files, handle, read_only, start, memory, wal)
            recover(core, changed=identity.wanted is not None)
            if not read_only:
                settled(disk, path, identity)
        return cls(core, owns_pool=pool is None)

    # ---- write

    def append(self, side: int, batch: Batch) -> int:
        """Adds rows to a side, readable at once, durable with the next epoch; with `durability="wal"` when it returns.
        Gives the first id; the others follow."""
        return writes.append(self._core, side, batch)

    def remove(self, side: int, start: int, end: int) -> None:
        """Removes the rows of a side with start <= ts < end that are there now."""
        writes.remove(self._core, side, start, end)

    def advance_watermark(self, ts: int) -> None:
        """Retires rows with ts <= watermark - the side's retention. A watermark that would go back is ignored."""
        writes.advance_watermark(self._core, ts)

    # ---- read

    def probe(
        self,
        side: int,
        batch: Batch,
        lower: int | None = None,
        upper: int | None = None,
        *,
        by: int | None = None,
        row_ids: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `side` that match rows of the other side: equal keys, lower <= row.ts - batch.ts <= upper (us).

        Each batch has the side's columns and `probe_index`, the row of `batch` that it matches. NULL equals nothing.
        `by` says whose rows `batch` holds, where there are more than two sides. Sees what is there at the call.
        """
        return self._core.view().probe(side, batch, lower, upper, by=by, row_ids=row_ids)

    def scan(
        self, side: int, start: int | None = None, end: int | None = None, *, ordered: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `side` with start <= ts < end (us), bucket by bucket, by time inside a bucket if `ordered`."""
        return self._core.view().scan(side, start, end, ordered=ordered)

    def view(self) -> View:
        """What is there at this moment, for as long as this handle does not collect it; `snapshot` keeps it."""
        return self._core.view()

    def snapshot(self) -> View:
        """A view of this moment that nothing changes, whoever writes, restores or collects. Close it."""
        return self._core.view(pinned=True)

    def at_epoch(self, epoch: int) -> View:
        """A view of a committed epoch. Close it."""
        core = self._core
        core.check_open()
        found = epochs.find_epoch(core, epoch)
        pin = core.pin(found)
        return core.version_view(found.version, pin.release if pin else None)

    # ---- epochs

    def prepare(self, epoch: int, *, meta: Mapping[str, Any] | None = None) -> str:
        """Makes all that was written durable as a candidate of `epoch`; gives its name. `meta` is kept with it."""
        with self._core.write_lock:
            return epochs.prepare(self._core, epoch, meta).name

    def commit(self, epoch: int, *, candidate: str | None = None) -> None:
        """Publishes a prepared epoch: from now on the state opens at it."""
        with self._core.write_lock:
            epochs.commit(self._core, epoch, candidate)

    def abort(self, epoch: int) -> None:
        """Forgets a prepared epoch. Its rows stay, and go into the next one."""
        with self._core.write_lock:
            epochs.abort(self._core, epoch)

    def snapshot_epoch(self, epoch: int, *, meta: Mapping[str, Any] | None = None) -> None:
        """prepare and commit in one."""
        with self._core.write_lock:
            prepared = self._core.prepared
            if prepared is not None and prepared.version.epoch == epoch:  # an earlier call failed after preparing
                epochs.abort(self._core, epoch)
            epochs.prepare(self._core, epoch, meta)
            epochs.commit(self._core, epoch, None)

    def retire(self, first: int) -> None:
        """Removes what only epochs before `first` need. For handles at a candidate; others retire by themselves."""
        with self._core.write_lock:
            self._core.check_writable()
            garbage.retire(self._core, first)

    def epochs(self) -> list[int]:
        """The committed epochs that can be opened, restored and branched."""
        self._core.check_open()
        return epochs.retained_epochs(self._core)

    def restore(self, epoch: int) -> None:
        """Goes back to a committed epoch; what came later is discarded, and epoch + 1 follows."""
        with self._core.write_lock:
            epochs.restore(self._core, epoch)

    def branch(self, epoch: int, path: str | os.PathLike[str]) -> None:
        """Makes a new state in `path` that begins with a committed epoch of this one, without copying."""
        with self._core.write_lock:
            branch.branch(self._core, epoch, self._core.fs.resolve(path_text(path)))

    def compact(self, *, major: bool = False, progress: Progress | None = None) -> None:
        """Merges now; what comes of it is durable with the next epoch. A major compaction goes on until every settled
        unit of time, and all the rest, is one file without removed rows. `progress` is called with why, and rows."""
        with self._core.write_lock:
            self._core.check_writable()
            self._core.compactor.run(major=major, progress=progress)

    # ---- look after it

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides, in the order of their numbers."""
        return self._core.sides

    @property
    def watermark(self) -> int | None:
        """How far `advance_watermark` has gone."""
        return self._core.working.watermark

    @property
    def next_id(self) -> int:
        """The id that the next row gets; all rows that are there have lower ones."""
        return self._core.working.next_id

    @property
    def meta(self) -> Mapping[str, Any]:
        """What `prepare` was given with the last committed epoch."""
        return self._core.head.version.meta

    def prepared_files(self) -> list[FileRef]:
        """The files of the epoch that is prepared; of the last committed one if none is."""
        manifest = self._core.prepared or self._core.head.manifest
        return [] if manifest is None else list(manifest.version.files.values())

    @property
    def wal_position(self) -> int:
        """The bytes that were ever logged and are durable; 0 without a write-ahead log. It only grows."""
        wal = self._core.wal
        return 0 if wal is None else wal.position

    def stats(self) -> Stats:
        """Rows, runs, files, bytes, watermark, and the work of the I/O pool."""
        self._core.check_open()
        return collect_stats(self._core)

    def verify(
        self,
        progress: VerifyProgress | None = None,
        *,
        candidates: Sequence[str] | None = None,
        hashes: tuple[int, int] | None = None,
    ) -> list[Problem]:
        """Checks every byte and every invariant of all retained epochs; gives what is wrong, nothing if all is well.

        `progress` is called before each file with its name, how many are done, and how many there are. `candidates`
        names manifests to check instead, oldest first; a handle at a candidate checks that one unless told. `hashes`
        are the least and the greatest that the key of a row of the first two sides may have."""
        self._core.check_open()
        return verify(self._core, progress, candidates, hashes)

    def close(self) -> None:
        """Ends the handle. What was not committed is not kept, except what was logged."""
        core = self._core
        if core.mark_closed() and self._owns_pool:
            core.compactor.stop()
            core.pool.close(_CLOSE_SECONDS)

    def __enter__(self) -> StateStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
