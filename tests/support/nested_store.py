"""A small state whose sides hold every type, and all that can be read from it: for flips and golden files."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pyarrow as pa

from iopool import FileSystem
from lsmstate import Options, Side, StateStore
from lsmstate.engine import View
from lsmstate.sstable.cache import FileCache
from tests.support.random_values import ALL, FLAT, NESTED, array_of
from tests.support.small_store import Reading

EPOCHS = 3


def side_of(name: str, kinds: list[pa.DataType]) -> Side:
    """A side with columns of some types after its key and time."""
    columns = [
        pa.field("k", pa.int64()),
        pa.field("ts", pa.int64()),
        *(pa.field(f"c{n}", k) for n, k in enumerate(kinds)),
    ]
    span = timedelta(seconds=40)
    return Side(name, pa.schema(columns), keys=["k"], time="ts", retention=span, bucket=timedelta(seconds=60))


def rows_of(side: Side, first: int, count: int) -> pa.RecordBatch:
    """Rows with NULLs, repeated keys and negative times among them; equal for equal numbers."""
    rng, numbers = Random(first), range(first, first + count)
    columns = [
        pa.array([None if n % 7 == 3 else n % 5 for n in numbers], pa.int64()),
        pa.array([n * 450_000 - 6_000_000 for n in numbers], pa.int64()),
        *(array_of(rng, kind, count) for kind in side.schema.types[2:]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=side.schema)


SIDES = [side_of("left", ALL), side_of("right", NESTED[-3:] + FLAT[-2:])]


def open_store(
    fs: FileSystem,
    path: str = "/state",
    *,
    create: bool = False,
    read_only: bool = False,
    cache: FileCache | None = None,
) -> StateStore:
    """The state, opened or created."""
    options = Options(retain=2, auto_compact=False)
    sides, attempt = (SIDES, "golden") if create else (None, None)
    return StateStore.open(path, sides, options, fs=fs, attempt=attempt, read_only=read_only, cache=cache)


def build(fs: FileSystem, path: str = "/state") -> None:
    """Writes the state: several epochs, a tombstone, a watermark, retired epochs."""
    with open_store(fs, path, create=True) as store:
        for epoch in range(1, EPOCHS + 1):
            store.append(0, rows_of(SIDES[0], epoch * 10, 4))
            store.append(1, rows_of(SIDES[1], epoch * 10, 4))
            if epoch == 2:
                store.remove(0, 1_000_000, 3_000_000)
            if epoch == 3:
                store.advance_watermark(39_000_000)
            store.snapshot_epoch(epoch, meta={"note": f"epoch {epoch}"})


def compact(fs: FileSystem, path: str = "/state") -> None:
    """Goes on with the state: a merge."""
    with open_store(fs, path) as store:
        store.append(0, rows_of(SIDES[0], 140, 9))
        store.append(1, rows_of(SIDES[1], 140, 5))
        store.advance_watermark(61_000_000)
        store.remove(0, 60_000_000, 61_000_000)
        store.snapshot_epoch(EPOCHS + 1, meta={"note": "before the merge"})
        store.compact()
        store.snapshot_epoch(EPOCHS + 2, meta={"note": "after the merge"})
    for name in fs.list_dir(f"{path}/merges"):  # adopted; what is left of it is nobody's
        fs.unlink(f"{path}/merges/{name}")


def read_all(fs: FileSystem, path: str = "/state", *, cache: FileCache | None = None) -> Reading:
    """Scans and probes the newest epoch and every retained one; rows are Arrow's, which are quick to compare."""
    with open_store(fs, path, read_only=True, cache=cache) as store:
        scans = {}
        for epoch in store.epochs():
            with store.at_epoch(epoch) as view:
                for side in (0, 1):
                    scans[epoch, side] = scanned(view, side)
        return Reading(scans, probed(store, 0), store.epochs())


def scanned(view: View, side: int) -> list[pa.RecordBatch]:
    """All rows of a side."""
    return list(view.scan(side, ordered=True))


def probed(of: StateStore | View, side: int) -> list[list[pa.RecordBatch]]:
    """Rows of a side that some of the other one meet."""
    return [list(of.probe(side, ask, -2_000_000, 2_000_000)) for ask in _ASKING]


def _asking(first: int, count: int) -> pa.RecordBatch:
    return rows_of(SIDES[1], first, count).select(["k", "ts"])


_ASKING = (_asking(10, 30), _asking(139, 15))
