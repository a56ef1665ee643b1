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
import numpy.typing as npt
import pyarrow as pa

from iopool import LocalFileSystem, WorkerPool
from lsmstate.engine import StateStore
from lsmstate.join.barrier import Barrier, barrier_of, retire_barriers
from lsmstate.join.home import Home
from lsmstate.join.pairs import pairs
from lsmstate.join.spec import JoinSpec
from lsmstate.options import Options
from lsmstate.schema import Side
from lsmstate.spark.place import Place
from lsmstate.spark.wiring import SIDE, Wiring
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
    unkeyed: list[int] = field(default_factory=lambda: [0, 0])  # NULL in the key or the time: they equal nothing
    rows_out: int = 0
    max_ts: list[int | None] = field(default_factory=lambda: [None, None])
    busy_s: float = 0.0  # without waiting for Spark to bring rows or to take them


def make_task(spec: JoinSpec, wiring: Wiring) -> Callable[[Batches], Batches]:
    """The function for mapInArrow."""

    def task(batches: Batches) -> Batches:
        return run_task(spec, wiring, batches)

    return task


def run_task(spec: JoinSpec, wiring: Wiring, batches: Batches) -> Batches:
    """Joins the rows of one partition and one epoch; the last row is the acknowledgement."""
    begun = time.perf_counter()
    place = Place.here(spec)
    mine = worker()
    home = Home(mine.fs, spec.path)
    run = home.enter_run(place.query, place.run, place.epoch)
    barrier = barrier_of(home, spec, place.epoch, run)
    out = wiring.result_schema()
    with StateStore.open_candidate(
        home.partition(place.partition),
        barrier.parent(place.partition),
        spec.sides,
        Options(retain=spec.retain),
        line=barrier.line,
        fs=mine.fs,
        pool=mine.pool,
        cache=mine.cache,
    ) as store:
        tally = Tally(max_ts=list(store.meta.get("max_ts", [None, None])))
        tally.busy_s = time.perf_counter() - begun
        for chunk in _chunks(batches):
            begun = time.perf_counter()
            place.check_rows(spec, chunk)
            for side, batch in _by_side(spec, wiring, chunk):
                living = _living(batch, spec.sides[side], side, barrier.late_watermark, tally)
                for columns in pairs(store, side, living, spec.lower_us, spec.upper_us):
                    tally.rows_out += len(columns[0])
                    emitted = _emitted(wiring, out, columns)
                    tally.busy_s += time.perf_counter() - begun
                    yield emitted
                    begun = time.perf_counter()
                store.append(side, living)
            tally.busy_s += time.perf_counter() - begun
        begun = time.perf_counter()
        ack = _finish(home, store, barrier, place, tally, spec.partitions, run)
        ack["busy_ms"] = round((tally.busy_s + time.perf_counter() - begun) * 1e3, 1)
    nulls = [pa.nulls(1, kind.type) for kind in out][:-1]
    yield pa.RecordBatch.from_arrays([*nulls, pa.array([json.dumps(ack)])], schema=out)


def _finish(
    home: Home, store: StateStore, barrier: Barrier, place: Place, tally: Tally, partitions: int, run: int
) -> dict[str, Any]:
    """Makes the epoch durable and retires old ones; gives the acknowledgement."""
    if barrier.watermark is not None:
        store.advance_watermark(barrier.watermark)
    candidate = store.prepare(place.epoch, meta={"run": run, "max_ts": tally.max_ts})
    store.retire(barrier.min_epoch)
    if place.partition == 0:
        retire_barriers(home, barrier.min_epoch)
    stats = store.stats()
    return {
        "partition": place.partition,
        "partitions": partitions,
        "epoch": place.epoch,
        "candidate": candidate,
        "rows_in": tally.rows_in,
        "rows_out": tally.rows_out,
        "late": tally.late,
        "unkeyed": tally.unkeyed,
        "state_rows": [side.rows for side in stats.sides],
        "state_bytes": stats.file_bytes,
        "files": stats.files,
        "max_ts": tally.max_ts,
        "watermark": barrier.watermark,
        "runs": [side.runs for side in stats.sides],
        "trouble": stats.collection_error or stats.compaction.last_error,
    }


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
            columns.append((column if picked is None else column.take(picked)).cast(told.type))
        yield side, pa.RecordBatch.from_arrays(columns, schema=kind.schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _living(batch: pa.RecordBatch, kind: Side, side: int, late: int | None, tally: Tally) -> pa.RecordBatch:
    """The rows that can match: on time, and without NULL in key or time."""
    tally.rows_in[side] += batch.num_rows
    good: npt.NDArray[np.bool_] = np.ones(batch.num_rows, bool)
    for name in (*kind.keys, kind.time):
        column = batch.column(name)
        if column.null_count:
            good &= column.is_valid().to_numpy(zero_copy_only=False)
    times = batch.column(kind.time)
    present = times.drop_null().cast(pa.int64()).to_numpy()
    if len(present):
        newest, before = int(present.max()), tally.max_ts[side]
        tally.max_ts[side] = newest if before is None else max(before, newest)
    tally.unkeyed[side] += int(len(good) - good.sum())
    if late is not None:
        on_time = times.cast(pa.int64()).fill_null(late).to_numpy() > late
        tally.late[side] += int((good & ~on_time).sum())
        good &= on_time
    return batch if good.all() else batch.filter(pa.array(good))


def _emitted(wiring: Wiring, out: pa.Schema, columns: list[pa.Array]) -> pa.RecordBatch:
    """Pairs as rows of the result."""
    arrays = [columns[pick].cast(field.type) for pick, field in zip(wiring.picks, out, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(columns[0]), pa.string())], schema=out)
