"""The task: what a partition does in an epoch.

Obeys the barrier, opens its state at the parent, probes and appends chunk by chunk (so each pair is found exactly once,
by the later of the two), lets the watermark retire what can match no more, makes the epoch durable as a candidate, and
says so in one last row. Nothing that an epoch promises outlives its task; a retried task does it all again, under
other names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from iopool import LocalFileSystem, WorkerPool
from lsmstate.encodings import plainly
from lsmstate.engine import StateStore
from lsmstate.join.barrier import Barrier, barrier_of, retire_barriers, retiring
from lsmstate.join.home import Home
from lsmstate.join.late import AHEAD, LATE, Sorted, as_kept, sort_out
from lsmstate.join.matchings import matching_of
from lsmstate.join.runs import Run, enter_run
from lsmstate.join.shape import LATE_SIDES, Columns
from lsmstate.join.spec import SIDES, JoinSpec
from lsmstate.keys import saturate
from lsmstate.options import Options
from lsmstate.spark.place import Place
from lsmstate.spark.wiring import SIDE, Wiring
from lsmstate.spark.worker_memory import explained
from lsmstate.sstable.cache import FileCache

CHUNK_ROWS = 256 << 10
CHUNK_BYTES = 128 << 20
Batches = Iterator[pa.RecordBatch]


class Worker:
    """What a Python worker keeps from task to task: threads and mapped files. It may end at any moment."""

    def __init__(self) -> None:
        self.fs = LocalFileSystem()
        self.pool = WorkerPool()
        self.cache = FileCache()


_worker: Worker | None = None


def worker() -> Worker:
    """The one of this process."""
    global _worker
    if _worker is None:
        _worker = Worker()
    return _worker


@dataclass
class Tally:
    """What a task has seen: for the acknowledgement, and for the next barrier."""

    rows_in: list[int] = field(default_factory=lambda: [0, 0])
    late: list[int] = field(default_factory=lambda: [0, 0])
    ahead: list[int] = field(default_factory=lambda: [0, 0])  # too far after the watermark
    unkeyed: list[int] = field(default_factory=lambda: [0, 0])  # NULL in the key or the time: they equal nothing
    rows_out: int = 0
    max_ts: list[int | None] = field(default_factory=lambda: [None, None])
    busy_s: float = 0.0  # without waiting for Spark to bring rows or to take them

    def take(self, side: int, rows: Sorted, count: int) -> None:
        """Counts the rows of a batch."""
        self.rows_in[side] += count
        self.late[side] += rows.late.num_rows
        self.ahead[side] += rows.ahead.num_rows
        self.unkeyed[side] += rows.unkeyed.num_rows
        if rows.max_ts is not None:
            before = self.max_ts[side]
            self.max_ts[side] = rows.max_ts if before is None else max(before, rows.max_ts)


def make_task(spec: JoinSpec, wiring: Wiring) -> Callable[[Batches], Batches]:
    """The function for mapInArrow."""

    def task(batches: Batches) -> Batches:
        try:
            yield from run_task(spec, wiring, batches)
        except MemoryError as error:
            told = explained(error)
            if told is None:
                raise
            raise told from error

    return task


def run_task(spec: JoinSpec, wiring: Wiring, batches: Batches) -> Batches:
    """Joins the rows of one partition and one epoch; the last row is the acknowledgement."""
    begun = time.perf_counter()
    place = Place.here(spec)
    mine = worker()
    home = Home(mine.fs, spec.path)
    run = enter_run(home, place.query, place.run, place.batch)
    barrier = barrier_of(home, spec, run.epoch(place.batch), run)
    out = wiring.result_schema()
    with StateStore.open_candidate(
        home.partition(place.partition),
        barrier.parent(place.partition),
        spec.shape.state_sides,
        Options(retain=spec.retain),
        line=barrier.line,
        fs=mine.fs,
        pool=mine.pool,
        cache=mine.cache,
    ) as store:
        tally = Tally(max_ts=list(store.meta.get("max_ts", [None, None])))
        tally.busy_s = time.perf_counter() - begun
        results = _results(spec, wiring, store, barrier, place, tally, batches)
        while True:
            begun = time.perf_counter()
            columns = next(results, None)
            if columns is not None:
                tally.rows_out += len(columns[0])
                emitted = _emitted(wiring, out, columns)
            tally.busy_s += time.perf_counter() - begun
            if columns is None:
                break
            yield emitted
        begun = time.perf_counter()
        ack = _finish(home, store, barrier, place, tally, spec, run)
        ack["busy_ms"] = round((tally.busy_s + time.perf_counter() - begun) * 1e3, 1)
    nulls = [pa.nulls(1, kind.type) for kind in out][:-1]
    yield pa.RecordBatch.from_arrays([*nulls, pa.array([json.dumps(ack)])], schema=out)


def _results(
    spec: JoinSpec,
    wiring: Wiring,
    store: StateStore,
    barrier: Barrier,
    place: Place,
    tally: Tally,
    batches: Batches,
) -> Iterator[Columns]:
    """All that comes out in this epoch. Afterwards the state holds all that the epoch has to remember."""
    matching = matching_of(spec.shape, store)
    late = barrier.late_watermark
    for chunk in _chunks(_timed(batches, tally)):
        place.check_rows(spec, chunk)
        for side, batch in _by_side(spec, wiring, chunk):
            before = barrier.watermark if barrier.newest[side] is None else barrier.newest[side]
            horizon = None if before is None or spec.max_jump_us is None else saturate(before + spec.max_jump_us)
            rows = sort_out(batch, spec.sides[side], late, horizon)
            tally.take(side, rows, batch.num_rows)
            for reason, aside in ((LATE, rows.late), (AHEAD, rows.ahead)):
                judged = before if late is None else late
                if spec.keeps_late and judged is not None and aside.num_rows:
                    kept = LATE_SIDES[side]
                    store.append(kept, as_kept(store.sides[kept], aside, reason, judged, barrier.epoch))
            if rows.living.num_rows:
                yield from matching.process(side, rows.living)
            if rows.unkeyed.num_rows and spec.kind.comes_alone(side):
                yield from matching.alone(side, rows.unkeyed)
    if barrier.watermark is not None:
        yield from matching.advance(barrier.watermark)
    matching.seal(barrier.epoch)


def _timed(batches: Batches, tally: Tally) -> Batches:
    """The same rows; the time that Spark takes to bring them is not ours."""
    while True:
        begun = time.perf_counter()
        batch = next(batches, None)
        tally.busy_s -= time.perf_counter() - begun
        if batch is None:
            return
        yield batch


def _finish(
    home: Home, store: StateStore, barrier: Barrier, place: Place, tally: Tally, spec: JoinSpec, run: Run
) -> dict[str, Any]:
    """Makes the epoch durable and retires old ones; gives the acknowledgement."""
    meta = {"run": run.number, "max_ts": tally.max_ts, "rows": tally.rows_in}
    candidate = store.prepare(barrier.epoch, meta=meta)
    with retiring(home, barrier, place.partition) as may_retire:
        if may_retire:
            store.retire(barrier.min_epoch)
            if place.partition == 0:
                retire_barriers(home, barrier.min_epoch)
    stats = store.stats()
    return {
        "partition": place.partition,
        "partitions": spec.partitions,
        "epoch": barrier.epoch,
        "line": barrier.line,
        "candidate": candidate,
        "rows_in": tally.rows_in,
        "rows_out": tally.rows_out,
        "late": tally.late,
        "ahead": tally.ahead,
        "unkeyed": tally.unkeyed,
        "state_rows": [side.rows for side in stats.sides[:2]],
        "state_bytes": stats.file_bytes,
        "files": stats.files,
        "max_ts": tally.max_ts,
        "watermark": barrier.watermark,
        "clock": None if barrier.watermark is None else saturate(barrier.watermark - spec.kind.longest_wait_us),
        "idle": barrier.idle,
        "runs": [side.runs for side in stats.sides[:2]],
        "trouble": stats.collection_error or stats.compaction.last_error or _all_ahead(tally),
    }


def _all_ahead(tally: Tally) -> str | None:
    for name, rows, ahead in zip(SIDES, tally.rows_in, tally.ahead, strict=True):
        if rows and rows == ahead:
            return f"all {rows} rows of {name} lie further than max_jump after those before: a wrong clock, or a gap?"
    return None


def _chunks(batches: Batches) -> Iterator[pa.Table]:
    """The rows in large pieces within a bound."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _by_side(spec: JoinSpec, wiring: Wiring, chunk: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each side, out of their slots."""
    which = chunk.column(SIDE).to_numpy()
    for side, kind in enumerate(spec.sides):
        rows = np.flatnonzero(which == side)
        if not len(rows):
            continue
        picked = None if len(rows) == chunk.num_rows else pa.array(rows)
        columns = []
        for slot, told in zip(wiring.of_side[side], kind.schema, strict=True):
            column = _whole(chunk.column(wiring.names[slot]))
            columns.append(plainly(column if picked is None else column.take(picked), told.type))
        yield side, pa.RecordBatch.from_arrays(columns, schema=kind.schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _emitted(wiring: Wiring, out: pa.Schema, columns: list[pa.Array]) -> pa.RecordBatch:
    """Pairs as rows of the result."""
    arrays = [plainly(columns[pick], field.type) for pick, field in zip(wiring.picks, out, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(columns[0]), pa.string())], schema=out)
