"""A small state with a bit of everything, and all that can be read from it: for flips, truncations and golden files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from iopool import FileSystem
from lsmstate import Options, Side, StateStore
from lsmstate.sstable.cache import FileCache

EPOCHS = 3

LEFT = Side(
    "left",
    pa.schema(
        [
            pa.field("k", pa.int64()),
            pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("name", pa.string()),
            pa.field("flag", pa.bool_()),
            pa.field("price", pa.decimal128(10, 2)),
        ]
    ),
    keys=["k"],
    time="ts",
    retention=timedelta(seconds=40),
    bucket=timedelta(seconds=60),
)
RIGHT = Side(
    "right",
    pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("at", pa.int64()),
            pa.field("raw", pa.large_binary()),
            pa.field("day", pa.date32()),
        ]
    ),
    keys=["id"],
    time="at",
    retention=timedelta(seconds=40),
    bucket=timedelta(seconds=60),
)
SIDES = [LEFT, RIGHT]


def left_rows(first: int, count: int) -> pa.RecordBatch:
    """Rows with NULL keys, NULL payloads, repeated keys and negative times among them."""
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "k": [None if n % 7 == 3 else n % 5 for n in numbers],
            "ts": [n * 450_000 - 6_000_000 for n in numbers],
            "name": [None if n % 4 == 1 else "name-" * (n % 3) + str(n) for n in numbers],
            "flag": [None if n % 6 == 5 else n % 2 == 0 for n in numbers],
            "price": [None if n % 5 == 2 else Decimal(n) / 4 for n in numbers],
        },
        schema=LEFT.schema,
    )


def right_rows(first: int, count: int) -> pa.RecordBatch:
    """Rows of the other side."""
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "id": [n % 5 for n in numbers],
            "at": [n * 430_000 - 6_000_000 for n in numbers],
            "raw": [None if n % 3 == 2 else bytes([n % 256]) * (n % 5) for n in numbers],
            "day": [None if n % 9 == 4 else n for n in numbers],
        },
        schema=RIGHT.schema,
    )


_PROBES = right_rows(10, 30)


def open_store(
    fs: FileSystem,
    path: str = "/state",
    *,
    create: bool = False,
    read_only: bool = False,
    cache: FileCache | None = None,
) -> StateStore:
    """The state, opened or created."""
    sides = SIDES if create else None
    attempt = "golden" if create else None
    options = Options(retain=2, auto_compact=False)
    return StateStore.open(path, sides, options, fs=fs, attempt=attempt, read_only=read_only, cache=cache)


def build(fs: FileSystem, path: str = "/state") -> None:
    """Writes the state: several epochs, a spill in the middle of one, a tombstone, a watermark, retired epochs."""
    with open_store(fs, path, create=True) as store:
        for epoch in range(1, EPOCHS + 1):
            store.append(0, left_rows(epoch * 10, 7))
            store.append(1, right_rows(epoch * 10, 7))
            if epoch == 2:
                store.remove(0, 1_000_000, 3_000_000)
            if epoch == 3:
                store.advance_watermark(39_000_000)
            store.snapshot_epoch(epoch, meta={"note": f"epoch {epoch}"})


def compact(fs: FileSystem, path: str = "/state") -> None:
    """Goes on with the state: a merge that takes a part of its files, leaves others narrowed, and folds a tombstone."""
    with open_store(fs, path) as store:
        store.append(0, left_rows(140, 40))
        store.append(1, right_rows(140, 40))
        store.advance_watermark(61_000_000)
        store.remove(0, 60_000_000, 61_000_000)
        store.snapshot_epoch(EPOCHS + 1, meta={"note": "before the merge"})
        store.compact()
        store.append(0, left_rows(190, 3))
        store.snapshot_epoch(EPOCHS + 2, meta={"note": "after the merge"})
        files = store._core.working.files.values()
        assert any(ref.left is not None for ref in files)
        assert any(ref.folded for ref in files)
    for name in fs.list_dir(f"{path}/merges"):  # adopted; what is left of it is nobody's
        fs.unlink(f"{path}/merges/{name}")


@dataclass(frozen=True)
class Reading:
    """All that can be read of a state."""

    scans: dict[tuple[int, int], list[Any]]
    pairs: list[Any]
    epochs: list[int]


def read_all(fs: FileSystem, path: str = "/state", *, cache: FileCache | None = None) -> Reading:
    """Scans and probes the newest epoch and every retained one."""
    with open_store(fs, path, read_only=True, cache=cache) as store:
        scans = {}
        for epoch in store.epochs():
            with store.at_epoch(epoch) as view:
                for side in (0, 1):
                    rows = [row for batch in view.scan(side, ordered=True) for row in batch.to_pylist()]
                    scans[epoch, side] = [tuple(row.values()) for row in rows]
        probes = _PROBES
        pairs = [
            tuple(row.values()) for batch in store.probe(0, probes, -2_000_000, 2_000_000) for row in batch.to_pylist()
        ]
        return Reading(scans, sorted(pairs, key=repr), store.epochs())
