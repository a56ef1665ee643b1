"""Where in a query a task runs: which partition, which batch, which query and run."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from lsmstate.errors import LsmStateError
from lsmstate.join.partition import partition_of
from lsmstate.join.spec import JoinSpec
from lsmstate.spark.wiring import HASH

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PROPERTIES = ("streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id")


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one task. Spark counts batches from 0, for each query anew."""

    partition: int
    batch: int
    query: str
    run: str

    @classmethod
    def here(cls, spec: JoinSpec) -> Place:
        """Asks Spark."""
        context = TaskContext.get()
        told = [None if context is None else context.getLocalProperty(name) for name in _PROPERTIES]
        batch, query, run = told
        if context is None or batch is None or query is None or run is None:
            raise LsmStateError(
                "stream_join works in streaming queries only: start it with writeStream. In foreachBatch, evaluate the "
                "batch in the function's own thread; on Spark Connect, foreachBatch cannot be used: write to a sink"
            )
        if _UUID.fullmatch(run) is None:
            raise LsmStateError(
                f"{spec.path}: the job group of the batch is {run!r}, not the run of the query: do not call "
                "setJobGroup in foreachBatch before the batch is evaluated"
            )
        if context.partitionId() >= spec.partitions:
            raise _shifted(spec)
        return cls(context.partitionId(), int(batch), query, run)

    def check_rows(self, spec: JoinSpec, chunk: pa.Table) -> None:
        """Raises if rows of another partition arrive: then Spark has renumbered the tasks."""
        hashes = chunk.column(HASH).to_numpy()
        if len(hashes) and (partition_of(hashes, spec.partitions) != self.partition).any():
            raise _shifted(spec)


def _shifted(spec: JoinSpec) -> LsmStateError:
    return LsmStateError(
        f"{spec.path}: the result of stream_join stands behind another stream in a union, which renumbers its tasks, "
        "or was coalesced, which joins them. Put it first in the union, or give it a shuffle of its own: "
        "joined.repartition(...)"
    )
