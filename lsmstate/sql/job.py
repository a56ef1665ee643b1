"""The job of a streaming table: a pipeline of the same name, made from its definition alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lsmstate.checkpoint.catalog import JobKind, JobRow
from lsmstate.checkpoint.connect.file_sink import FileSink
from lsmstate.checkpoint.connect.parquet_source import ParquetSource
from lsmstate.checkpoint.connect.sink import Sink
from lsmstate.checkpoint.connect.source import Source
from lsmstate.checkpoint.pipeline import Pipeline
from lsmstate.errors import CheckpointError
from lsmstate.sql.definition import Definition
from lsmstate.sql.parts import PickedSource, Progress, Selection
from lsmstate.sql.spans import span_us
from lsmstate.sql.table import Table

KIND: JobKind = "sql"
_JOIN, _SELECT, _OUT = "sql-join", "sql-select", "sql-out"  # names of tables have no -


@dataclass(frozen=True, slots=True)
class Job:
    """A streaming table that can run."""

    pipeline: Pipeline
    progress: Progress

    @property
    def epoch(self) -> int | None:
        """The last committed one of this run; None if it could not be started."""
        try:
            return self.pipeline.epoch
        except CheckpointError:
            return None


def job_of(catalog: str, row: JobRow) -> Job:
    """The job of a streaming table of the catalog."""
    definition = Definition.parse(row.name, row.definition)
    plan, progress = definition.plan, Progress()
    pipeline = Pipeline(
        row.name,
        catalog=catalog,
        state=definition.state,
        checkpoint_interval=timedelta(milliseconds=row.checkpoint_interval_ms),
        comment=row.comment,
        kind=KIND,
        definition=row.definition,
    )
    for one in plan.inputs:
        source = PickedSource(one.source, source_of(one.table), one.columns, progress)
        delay = timedelta(microseconds=span_us(one.table.options.get("delay", "0 seconds")))
        pipeline.source(one.source, source, time=one.time, delay=delay)
    pipeline.operator(_JOIN, plan.make_join, inputs=[one.source for one in plan.inputs])
    pipeline.operator(_SELECT, lambda: Selection(plan.selected, plan.where, progress), inputs=[_JOIN])
    pipeline.sink(_OUT, sink_of(definition), input=_SELECT)
    return Job(pipeline, progress)


def source_of(table: Table) -> Source:
    """Where the rows of a table come from."""
    return ParquetSource(table.options["path"], follow=table.follows, schema=table.schema)


def sink_of(definition: Definition) -> Sink:
    """Where the rows of a streaming table go."""
    options = definition.options
    if options["connector"] == "parquet":
        return FileSink(options["path"])
    from lsmstate.checkpoint.connect.database_sink import DatabaseSink  # SQLAlchemy is slow to import

    return DatabaseSink(options["url"], options["table"])
