"""A pipeline of two sources, a join and a sink over rows that everybody can make again; and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lsmstate import Side
from lsmstate.checkpoint import FileSink, Operator, Pipeline, TableSource
from lsmstate.join import InstantJoin, IntervalJoin

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
SIDES = tuple(Side(name, SCHEMA, ["k"], "ts") for name in ("left", "right"))
REACH = timedelta(milliseconds=300)
KEYS = 60
STEP_US = 1000


def rows(seed: int, count: int) -> pa.Table:
    """Rows of one source, by time; every third time stands for two rows, some keys are NULL."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, count * STEP_US // 4, count) // STEP_US * STEP_US)
    keys = pa.array(rng.integers(0, KEYS, count), mask=rng.random(count) < 0.02)
    return pa.table([keys, pa.array(ts, SCHEMA.field("ts").type), np.arange(count)], schema=SCHEMA)


def join_of(kind: str) -> Callable[[], Operator]:
    """A maker of joins: left, full, or instant (a full one at equal times)."""
    if kind == "instant":
        return lambda: InstantJoin(*SIDES, how="full")
    return lambda: IntervalJoin(*SIDES, lower=-REACH / 3, upper=REACH, how=kind)


def expected(kind: str, left: pa.Table, right: pa.Table) -> list[tuple[Any, ...]]:
    """What must come out, by another engine."""
    if kind == "instant":
        times = "r.ts = l.ts"
    else:
        times = "r.ts - l.ts between interval (-100) millisecond and interval 300 millisecond"
    how = "left" if kind == "left" else "full"
    sql = f"""select l.k, l.ts, l.n, r.ts, r.n, r.k from l {how} join r on l.k = r.k and {times}"""
    with duckdb.connect() as db:
        db.register("l", left)
        db.register("r", right)
        found = db.sql(sql).fetchall()
    return sorted(
        ((*row[:5],) if row[0] is not None or row[4] is None else (row[5], *row[1:5]) for row in found), key=repr
    )


def written(out: str | Path) -> list[tuple[Any, ...]]:
    """The rows that a reader finds in the directory of a sink."""
    if not any(Path(out).glob("part-*")):
        return []
    table = pq.read_table(out)
    return as_rows(table)


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of the join, in the order of `expected`."""
    columns = [table.column(name).to_pylist() for name in ("k", "ts", "n", "ts_right", "n_right")]
    return sorted(zip(*columns, strict=True), key=repr)


def pipeline(
    root: str | Path,
    kind: str,
    left: pa.Table,
    right: pa.Table,
    *,
    sources: Callable[[str, pa.Table], Any] | None = None,
    sink: Any = None,
    parallelism: int = 1,
    interval_s: float = 0.02,
    name: str = "job",
    **more: Any,
) -> Pipeline:
    """The job, with its catalog and its state below `root`, and its output in `out` unless told."""
    make = sources or (lambda name, table: TableSource(table, batch_rows=40))
    job = Pipeline(
        name,
        catalog=f"sqlite:///{root}/catalog.db",
        state=f"{root}/state",
        checkpoint_interval=timedelta(seconds=interval_s),
        **more,
    )
    tables: Mapping[str, pa.Table] = {"left": left, "right": right}
    for side, table in tables.items():
        job.source(side, make(side, table), time="ts")
    job.operator("join", join_of(kind), inputs=["left", "right"], parallelism=parallelism)
    return job.sink("out", sink or FileSink(f"{root}/out"), input="join")


def plain(root: Path, source: Any, operator: Any = None, **more: Any) -> Pipeline:
    """A pipeline of one source, maybe an operator, and a sink."""
    more.setdefault("checkpoint_interval", timedelta(seconds=60))
    sink = more.pop("sink", None) or FileSink(root / "out")
    job = Pipeline("plain", catalog=f"sqlite:///{root}/catalog.db", state=root / "state", **more)
    job.source("rows", source, time="ts")
    if operator is not None:
        job.operator("middle", operator, inputs=["rows"])
    return job.sink("out", sink, input="rows" if operator is None else "middle")


def numbers(out: Path) -> list[int]:
    return sorted(pq.read_table(out).column("n").to_pylist()) if any(out.glob("part-*")) else []
