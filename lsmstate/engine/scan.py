"""The scan: rows of a side bucket by bucket, in bounded batches.

Runs whose bucket ranges overlap are read together; runs of one bucket just follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.engine.probe import with_ids
from lsmstate.keys import I64, TS_MAX, TS_MIN, U64
from lsmstate.refs import RunRef
from lsmstate.sstable.order import Index, bucket_numbers
from lsmstate.sstable.run import Run

if TYPE_CHECKING:
    from lsmstate.engine.view import View

Part = tuple[Run, RunRef]
Only = Callable[[U64], npt.NDArray[np.bool_]]  # of some row ids, which are wanted
_BATCH_BYTES = 64 << 20  # of rows with the average size of their run


def scan(
    view: View, side: int, start: int | None, end: int | None, ordered: bool, row_ids: bool, only: Only | None
) -> Iterator[pa.RecordBatch]:
    """See `View.scan`."""
    low = max(TS_MIN if start is None else start, view.first_live_ts(side))
    high = TS_MAX if end is None else min(end - 1, TS_MAX)
    if low <= high:
        for cluster in _clusters(view, side, low, high):
            view.check_open()
            yield from _scan_cluster(view, side, cluster, low, high, ordered, row_ids, only)


def _clusters(view: View, side: int, low: int, high: int) -> Iterator[list[Part]]:
    """Runs that share buckets, by time; each with what is read of it."""
    sources = sorted(view.sources(side, low, high), key=lambda s: (s.ref.first_bucket, s.ref.last_bucket, s.ref.min_id))
    cluster: list[Part] = []
    last = 0
    for source in sources:
        if cluster and source.ref.first_bucket > last:
            yield cluster
            cluster = []
        run = source.open(low, high)
        if run is not None:
            last = max(last, source.ref.last_bucket) if cluster else source.ref.last_bucket
            cluster.append((run, source.ref))
    if cluster:
        yield cluster


def _scan_cluster(
    view: View,
    side: int,
    parts: list[Part],
    low: int,
    high: int,
    ordered: bool,
    row_ids: bool,
    only: Only | None,
) -> Iterator[pa.RecordBatch]:
    runs, refs = [run for run, _ in parts], [ref for _, ref in parts]
    picked = [_picked(view, run, max(low, ref.min_ts), high, only) for run, ref in parts]
    spread = max(r.last_bucket for r in refs) > min(r.first_bucket for r in refs)
    most = max(1, min(view.batch_rows, _BATCH_BYTES // max(run.row_bytes for run in runs)))
    if not spread and not ordered:
        for run, rows in zip(runs, picked, strict=True):
            for at in range(0, len(rows), most):
                view.check_open()
                yield _batch(view, side, [(run, rows[at : at + most])], row_ids)
        return
    rows = np.concatenate(picked)
    which = np.repeat(np.arange(len(runs)), [len(p) for p in picked])
    ts = np.concatenate([run.times(p) for run, p in zip(runs, picked, strict=True)])
    if ordered:
        ids = np.concatenate([run.ids(p) for run, p in zip(runs, picked, strict=True)])
        order = np.lexsort((ids, ts))
    else:
        order = np.argsort(bucket_numbers(ts, view.sides[side].bucket_us), kind="stable")
    for at in range(0, len(order), most):
        view.check_open()
        part = order[at : at + most]
        yield _gathered(view, side, runs, which[part], rows[part], row_ids)


def _picked(view: View, run: Run, low: int, high: int, only: Only | None) -> I64:
    """The rows of a run that are live and in range."""
    keep = np.ones(run.ref.rows, bool)
    if run.ref.min_ts < low or run.ref.max_ts > high:
        ts = run.times()
        keep &= (ts >= low) & (ts <= high)
    dead = view.killed(run, None)
    if dead is not None:
        keep &= ~dead
    rows = np.flatnonzero(keep)
    return rows if only is None or not len(rows) else rows[only(run.ids(rows))]


def _gathered(view: View, side: int, runs: list[Run], which: Index, rows: I64, row_ids: bool) -> pa.RecordBatch:
    """Rows of several runs in the given order."""
    by_run = np.argsort(which, kind="stable")
    parts = []
    for number in np.unique(which):
        mine = by_run[which[by_run] == number]
        parts.append((runs[number], rows[mine]))
    batch = _batch(view, side, parts, row_ids)
    back = np.empty(len(by_run), np.int64)
    back[by_run] = np.arange(len(by_run))
    return batch.take(pa.array(back))


def _batch(view: View, side: int, parts: list[tuple[Run, I64]], row_ids: bool) -> pa.RecordBatch:
    schema = view.sides[side].schema
    columns = []
    for number in range(len(schema)):
        arrays = [run.column(number, rows) for run, rows in parts]
        columns.append(arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays))
    if row_ids:
        schema = with_ids(schema)
        columns.append(pa.array(np.concatenate([run.ids(rows) for run, rows in parts])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
