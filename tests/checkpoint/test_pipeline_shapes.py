"""Pipelines in odd shapes: operators between operators, several instances, tables that come late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsmstate import Side
from lsmstate.checkpoint import (
    FileSink,
    Operator,
    OperatorContext,
    Pipeline,
    TableSource,
)
from lsmstate.errors import CheckpointError
from lsmstate.join import IntervalJoin
from tests.support.pipeline_job import REACH, expected, join_of, numbers, plain, rows, written
from tests.support.pipeline_parts import Counting, Passing, Waiting

LEFT, RIGHT = rows(41, 400), rows(42, 400)
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class Keyed(Passing):
    """Passes rows on, divided by key."""

    def route(self, number: int, batch: pa.RecordBatch, parallelism: int, /) -> npt.NDArray[np.int64]:
        return batch.column("n").to_numpy() % parallelism


def test_the_end_of_an_input_moves_the_watermark_also_behind_an_operator_that_has_none(tmp_path: Path) -> None:
    job = Pipeline("job", catalog=f"sqlite:///{tmp_path}/catalog.db", state=tmp_path / "state")
    job.source("left", TableSource(LEFT), time="ts").source("right", TableSource(RIGHT), time="ts")
    job.operator("passing", Passing, inputs=["left"])
    job.operator("join", join_of("left"), inputs=["passing", "right"])
    job.sink("out", FileSink(tmp_path / "out"), input="join").run()
    assert written(tmp_path / "out") == expected("left", LEFT, RIGHT)


@pytest.mark.parametrize("kind", ["bytes", "table"])
def test_parallelism_of_an_operator_with_bytes_or_tables_does_not_change_silently(kind: str, tmp_path: Path) -> None:
    class Tabled(Passing):
        def on_start(self, context: OperatorContext) -> None:
            assert context.tables is not None
            context.tables.keyed("seen", SCHEMA, ["k"])

    def job(parallelism: int) -> Pipeline:
        made = Pipeline("job", catalog=f"sqlite:///{tmp_path}/catalog.db", state=tmp_path / "state")
        made.source("rows", TableSource(LEFT), time="ts")
        made.operator("middle", Counting if kind == "bytes" else Tabled, inputs=["rows"], parallelism=parallelism)
        return made.sink("out", FileSink(tmp_path / "out"), input="middle")

    job(1).run()
    with pytest.raises(CheckpointError, match="cannot change from 1 to 2"):
        job(2).run()
    job(1).run()


@pytest.mark.parametrize("wrong", [lambda n, p: n % 3 - 1, lambda n, p: n % 3, lambda n, p: n[:1]])
def test_rows_that_are_routed_nowhere_end_the_job(wrong: Any, tmp_path: Path) -> None:
    class Wrong(Passing):
        def route(self, number: int, batch: pa.RecordBatch, parallelism: int, /) -> npt.NDArray[np.int64]:
            routed: npt.NDArray[np.int64] = wrong(batch.column("n").to_numpy(), parallelism)
            return routed

    job = Pipeline("job", catalog=f"sqlite:///{tmp_path}/catalog.db", state=tmp_path / "state")
    job.source("rows", TableSource(LEFT), time="ts").operator("middle", Wrong, inputs=["rows"], parallelism=2)
    with pytest.raises(CheckpointError, match=r"route\(\) must give"):
        job.sink("out", FileSink(tmp_path / "out"), input="middle").run()


def test_one_object_under_two_names_is_refused(tmp_path: Path) -> None:
    source, sink = TableSource(LEFT), FileSink(tmp_path / "out")
    job = Pipeline("job", catalog=f"sqlite:///{tmp_path}/catalog.db", state=tmp_path / "state")
    job.source("one", source).sink("out", sink, input="one")
    with pytest.raises(ValueError, match="under another name"):
        job.source("two", source)
    with pytest.raises(ValueError, match="under another name"):
        job.sink("more", sink, input="one")


def test_a_table_that_is_opened_late_survives_a_run_that_did_not_open_it(tmp_path: Path) -> None:
    class Late(Passing):
        def on_start(self, context: OperatorContext) -> None:
            self._context, self._table = context, None

        def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
            if self._table is None:
                assert self._context.tables is not None
                self._table = self._context.tables.keyed("late", SCHEMA, ["k"])
            self._table.put(batch.select(["k", "n"]).filter(batch.column("k").is_valid()))
            yield batch

    for before in (200, 0, 80):
        source = Waiting(LEFT, before)
        job = plain(tmp_path, source, Late)
        job.start()
        assert source.waits.wait(30)
        job.stop()
    assert numbers(tmp_path / "out") == list(range(280))


def test_instances_are_asked_for_routes_by_nobody_else(tmp_path: Path) -> None:
    """A router is an object of its own: an operator belongs to the thread of its task."""
    threads: dict[int, set[str]] = {}

    class Watched(Keyed):
        def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
            threads.setdefault(id(self), set()).add(threading.current_thread().name)
            return super().process_batch(number, batch)

        def route(self, number: int, batch: pa.RecordBatch, parallelism: int, /) -> npt.NDArray[np.int64]:
            threads.setdefault(id(self), set()).add(threading.current_thread().name)
            return super().route(number, batch, parallelism)

    kept: list[Watched] = []

    def make() -> Operator:
        kept.append(Watched())
        return kept[-1]

    job = Pipeline("job", catalog=f"sqlite:///{tmp_path}/catalog.db", state=tmp_path / "state")
    job.source("rows", TableSource(LEFT, batch_rows=40), time="ts").operator("w", make, inputs=["rows"], parallelism=2)
    job.sink("out", FileSink(tmp_path / "out"), input="w").run()
    assert numbers(tmp_path / "out") == list(range(400))
    assert all(len(names) == 1 for names in threads.values())


@pytest.mark.parametrize("encoding", ["dictionary", "view", "run ends"])
def test_encoded_columns_are_divided_among_the_instances_of_a_join(encoding: str, tmp_path: Path) -> None:
    def texts(table: pa.Table) -> pa.Table:
        return table.set_column(0, "k", table.column("k").cast(pa.string()))

    def encoded(table: pa.Table) -> pa.Table:
        key = table.column("k")
        if encoding == "view":
            key = key.cast(pa.string_view())
        else:
            key = (pc.run_end_encode if encoding == "run ends" else pc.dictionary_encode)(key)
        return table.set_column(0, "k", key)

    left, right = texts(LEFT), texts(RIGHT)
    sides = [Side(name, left.schema, ["k"], "ts") for name in ("left", "right")]
    job = Pipeline("job", catalog=f"sqlite:///{tmp_path}/catalog.db", state=tmp_path / "state")
    for name, table in (("left", left), ("right", right)):
        job.source(name, TableSource(encoded(table), batch_rows=40), time="ts")
    job.operator(
        "join",
        lambda: IntervalJoin(*sides, lower=-REACH / 3, upper=REACH, how="full"),
        inputs=["left", "right"],
        parallelism=3,
    )
    job.sink("out", FileSink(tmp_path / "out"), input="join").run()
    assert written(tmp_path / "out") == expected("full", left, right)
