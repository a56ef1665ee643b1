"""Pipelines with tables: lookups in a reference table, operators with tables of their own, and logged sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iopool import LocalFileSystem
from lsmstate.checkpoint import (
    CheckpointBarrier,
    CheckpointManifest,
    FileSink,
    LoggedSource,
    Lookup,
    Operator,
    OperatorContext,
    Pipeline,
    ReferenceTable,
    TableSource,
)
from lsmstate.checkpoint.manifest.store import ManifestStore
from tests.support.pipeline_job import rows
from tests.support.pipeline_parts import Waiting

ROWS = rows(31, 1200)
NAMES = pa.table({"k": pa.array(range(60), pa.int64()), "name": [f"key {k}" for k in range(60)]})


def job_of(root: Path, source: Any, operator: Any, **more: Any) -> Pipeline:
    job = Pipeline(
        "job",
        catalog=f"sqlite:///{root}/catalog.db",
        state=root / "state",
        checkpoint_interval=timedelta(seconds=600),
        **more,
    )
    job.source("rows", source, time="ts").operator("middle", operator, inputs=["rows"])
    return job.sink("out", FileSink(root / "out"), input="middle")


def manifest_of(root: Path) -> CheckpointManifest:
    (path,) = (root / "state").glob("*/checkpoints")
    found = ManifestStore(LocalFileSystem(), str(path)).latest()
    assert found is not None
    return found


def test_rows_get_the_columns_of_a_reference_table_whose_offsets_and_store_are_checkpointed(tmp_path: Path) -> None:
    source = Waiting(ROWS, 600)
    first = job_of(tmp_path, source, lambda: Lookup(ReferenceTable(TableSource(NAMES.slice(0, 30)), ["k"])))
    first.start()
    assert source.waits.wait(30)
    first.stop()
    manifest = manifest_of(tmp_path)
    assert manifest.table_offsets["middle:reference"].offsets == {"rows": "30"}
    assert manifest.table_store_checkpoint_path == "operators/middle/0/table-reference"
    assert manifest.operator_states["middle:reference"].lsm is not None
    job_of(tmp_path, TableSource(ROWS), lambda: Lookup(ReferenceTable(TableSource(NAMES), ["k"]))).run()
    assert manifest_of(tmp_path).table_offsets["middle:reference"].offsets == {"rows": "60"}
    found = pq.read_table(tmp_path / "out").sort_by("n").to_pylist()
    assert [row["n"] for row in found] == list(range(1200))
    for row in found:
        known = row["k"] is not None and (row["n"] >= 600 or row["k"] < 30)
        assert row["name"] == (f"key {row['k']}" if known else None)


class Totals(Operator):
    """Sums up `n` by key in a table; gives nothing. Its hook may refuse to persist."""

    def __init__(self, persists: bool = True) -> None:
        self._persists = persists

    def on_start(self, context: OperatorContext) -> None:
        assert context.tables is not None
        self._table = context.tables.keyed("totals", pa.schema([("k", pa.int64()), ("sum", pa.int64())]), ["k"])

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        keyed = pa.Table.from_batches([batch]).filter(batch.column("k").is_valid())
        sums = keyed.group_by("k").aggregate([("n", "sum")]).combine_chunks()
        if sums.num_rows:
            (asked,) = sums.select(["k"]).to_batches()
            found = self._table.get(asked)
            before = dict(zip(found.rows.column("k").to_pylist(), found.rows.column("sum").to_pylist(), strict=True))
            added = {row["k"]: row["n_sum"] + before.get(row["k"], 0) for row in sums.to_pylist()}
            self._table.put(pa.record_batch({"k": list(added), "sum": list(added.values())}))
        yield batch

    def totals(self) -> dict[int, int]:
        return {row["k"]: row["sum"] for batch in self._table.items() for row in batch.to_pylist()}

    def handle_checkpoint(self, barrier: CheckpointBarrier) -> bool:
        return self._persists


def totals_of(table: pa.Table) -> dict[int, int]:
    keyed = table.filter(table.column("k").is_valid())
    return {row["k"]: row["n_sum"] for row in keyed.group_by("k").aggregate([("n", "sum")]).to_pylist()}


def stopped(root: Path, source: Any, operator: Totals) -> dict[int, int]:
    """What the table of a job holds when it was restored, then run to where its source waits, and stopped."""
    made: list[Totals] = []

    def make() -> Operator:
        made.append(operator)
        return operator

    job = job_of(root, source, make)
    job.start()
    held = operator.totals()
    if isinstance(source, Waiting):
        assert source.waits.wait(30)
        job.stop()
    else:
        job.wait()
    return held


def test_tables_are_made_durable_after_the_hook_and_come_back(tmp_path: Path) -> None:
    assert stopped(tmp_path, Waiting(ROWS, 600), Totals()) == {}
    assert stopped(tmp_path, Waiting(ROWS, 0), Totals()) == totals_of(ROWS.slice(0, 600))
    assert manifest_of(tmp_path).operator_states["middle:totals"].lsm is not None


def test_a_hook_that_says_no_skips_persisting(tmp_path: Path) -> None:
    stopped(tmp_path, Waiting(ROWS, 400), Totals())
    stopped(tmp_path, Waiting(ROWS, 400), Totals(persists=False))
    held = stopped(tmp_path, Waiting(ROWS, 0), Totals())
    assert held == totals_of(ROWS.slice(0, 400)), "the epoch that the hook refused is not in the table"


class Once(TableSource):
    """A source that cannot replay: opened again it goes on with what nobody has read yet."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table, batch_rows=50)
        super().open(None)

    def open(self, offsets: Mapping[str, str] | None) -> None:
        pass

    def offsets(self) -> dict[str, str]:
        return {}


def test_a_source_that_cannot_replay_is_logged_and_its_position_stands_in_the_manifest(tmp_path: Path) -> None:
    once = Once(ROWS)
    for _ in range(3):
        job = job_of(tmp_path, LoggedSource(once, tmp_path / "log"), Through)
        job.start()
        job.checkpoint(30)
        job.stop(savepoint=False)
    manifest = manifest_of(tmp_path)
    assert manifest.wal_position is not None
    assert manifest.per_core_wal_positions == {"rows": manifest.wal_position}
    job_of(tmp_path, LoggedSource(once, tmp_path / "log"), Through).run()
    assert sorted(pq.read_table(tmp_path / "out").column("n").to_pylist()) == list(range(1200))


class Through(Operator):
    """Passes rows on."""

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        yield batch
