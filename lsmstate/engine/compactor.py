"""The compactor: carries out what the picker chooses, in the compaction lane of the pool.

A job works on the version that it was given, step by step; each step writes its files and leaves a note
(merge_note.py). Writers adopt what fits when they prepare an epoch. Only where a side has more runs than a probe should
look into does `prepare` wait, or, if no job is under way, work itself: so the number of runs is bounded also where
processes die too early to finish anything. Threading: a job touches nothing of its handle but counters; one
process at a time compacts a state, the others leave it to that one.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from compaction import RUNS_MAX, Choice, Tree, dead_rows, pick
from iopool import PoolBusy, Ticket
from iopool.lane import members
from lsmstate.engine.files import open_table
from lsmstate.engine.flush import outliving
from lsmstate.engine.merge import Keep, MergedRun, merged_runs
from lsmstate.engine.merge_note import Merged, NoteWriter, Taken, adopted, read_notes, remove_note
from lsmstate.engine.shape import Shapes, next_merge, rows_max, unit_us
from lsmstate.errors import CorruptionError, LsmStateError
from lsmstate.keys import I64, TS_MIN, U64
from lsmstate.manifest import names
from lsmstate.manifest.version import Version
from lsmstate.refs import FileRef, RunRef, narrowed
from lsmstate.schema import Side
from lsmstate.sstable.reader import StoredRun
from lsmstate.sstable.writer import Abandoned, write_sstable

if TYPE_CHECKING:
    from lsmstate.engine.core import Core

_STEPS = 4  # of one job: then it looks at a newer version
Progress = Callable[[str, int], None]  # what is merged, and how many rows of it are written


@dataclass(slots=True)
class CompactionStats:
    """What the jobs of a handle have done."""

    merges: int = 0
    rows_merged: int = 0
    bytes_written: int = 0
    adopted: int = 0
    last_error: str | None = None


class Compactor:
    """The compaction of one handle."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ticket: Ticket[None] | None = None
        self._stopping = threading.Event()
        self._shunned: set[str] = set()  # files that are damaged: they stay as they are
        self._shapes = Shapes(core.sides)
        self.counters = CompactionStats()
        _COMPACTORS.add(self)

    # ---- for writers, under the write lock

    def kick(self) -> None:
        """Starts a job if there is work and none is under way."""
        core = self._core
        if not core.options.auto_compact or (self._ticket is not None and not self._ticket.done()):
            return
        version = core.working
        if pick(self._tree(version)) is None:
            return
        with contextlib.suppress(PoolBusy):  # other states of the process wait already: there will be a next time
            self._ticket = core.pool.submit("compaction", lambda: self._job(version), timeout=0.0)

    def adopt(self) -> None:
        """Puts finished merges into the working version, and sees to it that no side has too many runs."""
        self._adopt_notes()
        tried = not self._core.options.auto_compact
        while max(map(self._tree(self._core.working).runs, range(len(self._core.sides)))) > RUNS_MAX:
            if self._ticket is not None and not self._ticket.done():
                self.wait_quietly()
            elif tried or pick(self._tree(self._core.working)) is None:
                return
            else:
                tried = True
                self.kick()
                self.wait_quietly()
            tried = not self._adopt_notes() and tried

    def run(self, *, major: bool, progress: Progress | None = None) -> None:
        """Compacts until nothing is left to do, in the calling thread. What it raises was isolated by nobody."""
        while True:
            self.wait_quietly()
            before = self.counters.merges
            self._work(self._core.working, major=major, progress=progress)
            self._adopt_notes()
            if self.counters.merges == before:
                return

    def wait(self) -> None:
        """Waits for the job under way."""
        if self._ticket is not None:
            self._ticket.result()

    def wait_quietly(self) -> None:
        """The same; what a job raised has been counted."""
        with contextlib.suppress(Exception):
            self.wait()

    def stop(self) -> None:
        """Lets a job under way end soon, without a result."""
        self._stopping.set()

    def debt_rows(self) -> int:
        """The rows that the next merge would read."""
        found = next_merge(self._core.working, self._core.sides)
        return 0 if found is None else found[1]

    def _adopt_notes(self) -> bool:
        core = self._core
        found = read_notes(core.fs, core.path, core.store_id, core.sides)
        notes = {name: merged for name, merged in found if merged is not None}
        there = {name: merged for name, merged in notes.items() if self._is_there(merged)}
        version, used = _with_all(core.working, there)
        if used:
            with core.swap_lock:
                core.working = version
            self.counters.adopted += len(used)
        if not notes:
            return False
        # What the last epoch still leads to is for others too, until an epoch of this handle is durable.
        _, wanted = _with_all(replace(core.working, files=core.head.version.files), there)
        for name, merged in notes.items():
            if name not in used and name not in wanted and merged.is_overtaken(core.working):
                remove_note(core.fs, core.path, name)
        return bool(used)

    def _is_there(self, merged: Merged) -> bool:
        """Whether the files of a merge are what its note says. They are read next, so opening them costs nothing."""
        core = self._core
        try:
            for ref in merged.added:
                core.cache.get(core.fs, core.sst_directory, ref, core.sides_by_number)
        except (LsmStateError, OSError):
            return False
        return True

    # ---- in the job

    def _job(self, version: Version) -> None:
        with outliving():
            self._work(version)

    def _work(self, version: Version, *, major: bool = False, progress: Progress | None = None) -> None:
        core = self._core
        lock = core.fs.lock(f"{core.path}/{names.COMPACTION_LOCK}")
        if lock is None:
            return  # another process is at it
        try:
            for name, merged in read_notes(core.fs, core.path, core.store_id, core.sides):
                if merged is None:  # whoever wrote it has died: a living one would hold the lock
                    remove_note(core.fs, core.path, name)
                elif self._is_there(merged):
                    version = adopted(version, merged) or version
            for _ in range(_STEPS):
                choice = pick(self._tree(version), major=major)
                if choice is None or self._stopping.is_set():
                    return
                done = self._step(version, choice, progress)
                version = version if done is None else adopted(version, done) or version
        finally:
            lock.release()

    def _step(self, version: Version, choice: Choice, progress: Progress | None) -> Merged | None:
        """One merge and its note; None if it could not be."""
        core = self._core
        name = names.Name(version.epoch + 1, version.line, core.attempt, core.next_number(), "sst")
        note: NoteWriter | None = NoteWriter(core.fs, core.path, name)
        try:
            merged = self._merged(version, choice, str(name), progress)
            assert note is not None
            note.complete(core.store_id, core.sides, merged)
            note = None
        except Abandoned:
            return None
        except CorruptionError as error:
            self._shunned |= {name for name in choice.files if error.path.endswith(f"/{name}")}
            self.counters.last_error = str(error)
            return None
        except OSError as error:
            self.counters.last_error = f"{type(error).__name__}: {error}"
            raise
        finally:
            if note is not None:
                note.give_up()
        self.counters.merges += 1
        self.counters.rows_merged += sum(run.rows for ref in merged.added for run in ref.runs)
        self.counters.bytes_written += merged.bytes_written
        return merged

    def _merged(self, version: Version, choice: Choice, name: str, progress: Progress | None) -> Merged:
        core = self._core
        most = rows_max(version)
        taken: list[Taken] = []
        runs: list[MergedRun] = []

        def tick(rows: int) -> None:
            if self._stopping.is_set():
                raise Abandoned
            if progress is not None:
                progress(choice.why, rows)

        for side, kind in enumerate(core.sides):
            if choice.side not in (None, side):
                continue
            end = None if choice.unit is None else (choice.unit + 1) * unit_us(kind)
            inputs: list[StoredRun] = []
            keeps: list[Keep] = []
            for ref in (version.files[name] for name in choice.files):
                table = open_table(core, ref)
                for number, part in enumerate(ref.parts):
                    if part is None or part.side != side or (end is not None and part.min_ts >= end):
                        continue
                    inputs.append(table.runs[number])
                    keeps.append(_keep(version, side, kind, part, end))
                    taken.append(Taken(ref.name, ref.digest, number, part, _left(kind, table.runs[number], part, end)))
            if inputs:
                runs += merged_runs(side, kind, inputs, keeps, most, tick)
        added: tuple[FileRef, ...] = ()
        if runs:
            epoch, folded = version.epoch + 1, max((t.id + 1 for t in version.tombstones), default=0)
            sides = core.sides_by_number
            added = (write_sstable(core.fs, core.sst_directory, name, sides, runs, epoch, folded),)
        return Merged(tuple(taken), added, version.watermark, version.tombstones)

    def _tree(self, version: Version) -> Tree:
        return self._shapes.tree_of(version, self._shunned)


def _with_all(version: Version, notes: Mapping[str, Merged]) -> tuple[Version, set[str]]:
    """The version with all merges in place that fit, in whatever order they build on each other; and which did."""
    used: set[str] = set()
    while True:
        before = len(used)
        for name, merged in notes.items():
            after = adopted(version, merged)
            if after is not None:
                version = after
                used.add(name)
        if len(used) == before:
            return version, used


def _keep(version: Version, side: int, kind: Side, part: RunRef, end: int | None) -> Keep:
    """Which rows of a run go into a merge: those that are read, and before `end`."""
    live = TS_MIN
    if version.watermark is not None and kind.retention_us is not None:
        live = max(TS_MIN, version.watermark - kind.retention_us + 1)
    first = max(live, part.min_ts)
    tombstones = [(t.start_ts, t.end_ts, t.id) for t in version.tombstones if t.side == side]

    def keep(ts: I64, ids: U64) -> npt.NDArray[np.bool_]:
        stays = ~dead_rows(ts, ids, first, tombstones)
        return stays if end is None else stays & (ts < end)

    return keep


def _left(kind: Side, run: StoredRun, part: RunRef, end: int | None) -> RunRef | None:
    """What is left of a run once its rows before `end` are taken."""
    if end is None or part.max_ts < end:
        return None
    return narrowed(part, end // kind.bucket_us, end, int((run.times() >= end).sum()))


def _at_exit() -> None:
    """The interpreter ends: it waits for jobs, but not long."""
    for each in members(_COMPACTORS):
        each.stop()


_COMPACTORS: weakref.WeakSet[Compactor] = weakref.WeakSet()
atexit.register(_at_exit)
