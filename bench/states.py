"""States to measure on: rows of one side spread evenly over the retention, a number of files of equal size."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from bench.workload import TIME, KeyKind, make_rows
from lsmstate import Side, StateStore

HOUR_US = 3_600_000_000
SEED = 7


def sides(key_kind: KeyKind, retention: timedelta = timedelta(hours=1)) -> list[Side]:
    """Two sides with the columns of the workload."""
    key = pa.int64() if key_kind == "int" else pa.string()
    schema = pa.schema([("key", key), ("ts", TIME), ("amount", pa.float64()), ("tag", pa.string())])
    return [Side(name, schema, keys=["key"], time="ts", retention=retention) for name in ("left", "right")]


def build(path: Path, rows: int, files: int, key_kind: KeyKind) -> StateStore:
    """A state of `rows` rows on side 0 in `files` SSTables, one epoch each, times ascending over an hour."""
    store = StateStore.open(path, sides(key_kind))
    each = rows // files
    for number in range(files):
        ts0, ts1 = number * HOUR_US // files, (number + 1) * HOUR_US // files - 1
        batch = make_rows(each, start_id=number * each, key_kind=key_kind, ts0=ts0, ts1=ts1, seed=SEED)
        store.append(0, batch)
        store.snapshot_epoch(number + 1)
    return store
