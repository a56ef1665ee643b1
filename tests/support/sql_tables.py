"""Tables for streaming tables: rows in parquet files, scripts over them, and what DuckDB makes of the same SELECT."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsmstate.checkpoint import ParquetSource
from lsmstate.sql import job
from lsmstate.sql.table import Table

SEED = 20260131
ON = "i.ad_id = c.ad_id AND c.ts BETWEEN i.ts - INTERVAL '5 seconds' AND i.ts + INTERVAL '20 seconds'"
SELECT = f"SELECT i.ad_id, i.n, c.n AS m FROM impressions i FULL JOIN clicks c ON {ON}"
TIME = pa.timestamp("us")


def rows(seed: int, count: int, time: pa.DataType = TIME) -> pa.Table:
    """Rows by time, 10 a second; a tenth of the keys is NULL, and every number of milliseconds is a multiple of 500."""
    rng = np.random.default_rng([SEED, seed])
    ts = np.sort(rng.integers(0, count // 5, count)) * 500_000
    keys = pa.array(rng.integers(0, 20, count), mask=rng.random(count) < 0.1)
    return pa.table(
        {
            "ad_id": keys,
            "site": pa.array([f"s{n}" for n in rng.integers(0, 3, count)]),
            "ts": pa.array(ts).cast(time),
            "price": pa.array(rng.integers(0, 100, count) / 4, mask=rng.random(count) < 0.1),
            "n": pa.array(np.arange(count)),
        }
    )


def put(path: Path, table: pa.Table, files: int = 3, first: int = 0) -> None:
    """Writes a table as some files of a directory."""
    path.mkdir(parents=True, exist_ok=True)
    each = -(-table.num_rows // files)
    for number in range(files):
        part = table.slice(number * each, each)
        pq.write_table(part, path / f"{first + number:04d}.parquet", row_group_size=50)


def named(root: Path, *tables: str, more: str = "") -> str:
    """CREATE TABLE for directories below `in`."""
    return "".join(
        f"CREATE TABLE {name} WITH ('connector' = 'parquet', 'path' = '{root}/in/{name}', 'time' = 'ts'{more});\n"
        for name in tables
    )


def streaming(root: Path, name: str, select: str, more: str = "'checkpoint.interval' = '20'") -> str:
    """CREATE STREAMING TABLE that writes below `out`."""
    options = ", ".join(filter(None, ["'connector' = 'parquet'", f"'path' = '{root}/out/{name}'", more]))
    return f"CREATE STREAMING TABLE {name} WITH ({options}) AS {select};\n"


def script(root: Path, name: str = "joined", select: str = SELECT, **more: str) -> str:
    """CREATE TABLE for the two tables, and a streaming table over them."""
    return named(root, "impressions", "clicks") + streaming(root, name, select, **more)


def catalog(root: Path) -> str:
    """The address of its catalog."""
    return f"sqlite:///{root}/state/catalog.db"


def by_duckdb(root: Path, select: str) -> list[str]:
    """The rows of a SELECT over the tables below `in`, in no order."""
    select = re.sub(r"LEFT (SEMI|ANTI)", r"\1", select)
    with duckdb.connect() as db:
        for path in (path for path in (root / "in").iterdir() if path.name in select.lower()):
            db.sql(f"CREATE VIEW {path.name} AS SELECT * FROM '{path}/*.parquet'")
        return sorted(map(repr, db.sql(select).fetchall()))


def written(root: Path, name: str) -> list[str]:
    """The rows of a streaming table, in no order."""
    out = root / "out" / name
    if not any(out.glob("*.parquet")):
        return []
    table = pq.read_table(out)
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


class Gated(ParquetSource):
    """Gives some rows, then waits until it may go on."""

    def __init__(self, *given: Any, before: int, **more: Any) -> None:
        super().__init__(*given, batch_rows=25, **more)
        self._before, self._seen = before, 0
        self.go_on, self.waits = threading.Event(), threading.Event()

    def read(self) -> pa.RecordBatch | None:
        if self._seen >= self._before and not self.go_on.is_set():
            self.waits.set()
            return None
        batch = super().read()
        self._seen += 0 if batch is None else batch.num_rows
        return batch


def gates(monkeypatch: pytest.MonkeyPatch, before: int) -> list[Gated]:
    """Makes all sources wait after some rows; gives those that were made."""
    made: list[Gated] = []

    def source_of(table: Table) -> Gated:
        made.append(Gated(table.options["path"], schema=table.schema, before=before))
        return made[-1]

    monkeypatch.setattr(job, "source_of", source_of)
    return made
