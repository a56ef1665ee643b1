"""The job of the demonstration: impressions and clicks as two streams, joined by lsmstate while they are written.

When all files are joined, Spark joins them once more as a batch, and the two results are compared row by row.
Threading: Spark is driven by a thread of the job's own, so that the caller's can be interrupted at any moment; what
it has come to is swapped whole, and `look` may be called from any thread.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from iopool import FileSystem
from lsmstate.errors import LsmStateError
from lsmstate.spark.demo_feed import FILES_A_SECOND, Fed, Feeder
from lsmstate.spark.demo_session import LOG, embedded_session, end_session
from lsmstate.spark.listener import EpochProgress, progress
from lsmstate.spark.plan import stream_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STATE = "state/ad-join"
INPUTS = ("impressions", "clicks")
RESULT = "joined"
WITHIN_S = 20  # a click counts that comes so long after the ad at most
WATERMARK_S = 10
_COLUMNS = ("ad_id bigint, ts timestamp, campaign string, price double", "ad_id bigint, ts timestamp, user string")
_POLL_S = 0.2
_PATIENCE_S = 10.0
Phase = Literal["starting", "joining", "checking", "ended"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the joined rows compare with those of the batch join; equal rows count as often as they come."""

    rows: int
    expected: int
    missing: int
    extra: int

    @property
    def right(self) -> bool:
        """Whether they are the same."""
        return self.missing == self.extra == 0 and self.rows == self.expected


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a job at a moment."""

    phase: Phase
    elapsed_s: float
    files: int  # that will be fed, for each side
    fed: Fed
    epochs: tuple[EpochProgress, ...]
    verdict: Verdict | None


class DemoJob:
    """One run of the demonstration in a new directory. A context: leaving it ends whatever runs."""

    def __init__(self, fs: FileSystem, where: str, seconds: int) -> None:
        self._fs, self._where = fs, where
        self._feeder = Feeder(fs, where, INPUTS, seconds * FILES_A_SECOND)
        self._begun = time.monotonic()
        self._ended_s: float | None = None
        self._phase: Phase = "starting"
        self._epochs: tuple[EpochProgress, ...] = ()
        self._verdict: Verdict | None = None
        self._error: Exception | None = None
        self._session: SparkSession | None = None
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo job", daemon=True)

    def __enter__(self) -> DemoJob:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        session = self._session
        if session is not None and not self._ended.is_set():
            session.sparkContext.cancelAllJobs()
        self._ended.wait(_PATIENCE_S)  # should it hang, Spark still ends with this process

    def wait(self, seconds: float) -> bool:
        """Waits a moment; True once the job has ended. Raises what made it fail."""
        if not self._ended.wait(seconds):  # not Thread.join: interrupted, it would take the thread for dead
            return False
        if self._error is not None:
            raise self._error
        return True

    def look(self) -> Look:
        """How far it is."""
        elapsed = time.monotonic() - self._begun if self._ended_s is None else self._ended_s
        return Look(self._phase, elapsed, self._feeder.files, self._feeder.fed, self._epochs, self._verdict)

    # ---- in the thread of the job

    def _run(self) -> None:
        try:
            self._session = session = embedded_session(self._fs, self._where)
            try:
                self._join(session)
                if not self._stopping.is_set():
                    self._phase = "checking"
                    self._verdict = compared(
                        self._joined(session).toArrow(), batch_join(session, self._where).toArrow()
                    )
                    self._ended_s, self._phase = time.monotonic() - self._begun, "ended"
            finally:
                self._session = None
                end_session(session)
        except Exception as error:
            self._error = error
        finally:
            self._ended.set()

    def _join(self, session: SparkSession) -> None:
        if self._stopping.is_set():
            return
        query = self._query(session)
        try:
            self._feeder.start()
            self._phase = "joining"
            while not self._stopping.wait(_POLL_S) and not self._drained(query):
                pass
        finally:
            self._feeder.stop()
            query.stop()

    def _query(self, session: SparkSession) -> StreamingQuery:
        impressions, clicks = (
            session.readStream.schema(columns).parquet(f"{self._where}/{name}")
            for name, columns in zip(INPUTS, _COLUMNS, strict=True)
        )
        joined = stream_join(
            impressions,
            clicks,
            on="ad_id",
            how="inner",
            time=("ts", "ts"),
            within=("0 seconds", f"{WITHIN_S} seconds"),
            watermark=(f"{WATERMARK_S} seconds", f"{WATERMARK_S} seconds"),
            suffixes=("", "_click"),
            state=f"{self._where}/{STATE}",
            partitions=2,
        )
        writer = joined.writeStream.format("parquet").option("path", f"{self._where}/{RESULT}")
        return writer.option("checkpointLocation", f"{self._where}/checkpoint").start()

    def _drained(self, query: StreamingQuery) -> bool:
        """Takes in what the query reports; True once it has joined all that was and will be fed."""
        ended = self._feeder.ended  # asked before the query is, so that nothing comes in between
        self._epochs = tuple(progress(query))
        if self._epochs:  # Spark has warmed up
            self._feeder.pace()
        if self._feeder.error is not None:
            raise self._feeder.error
        if not query.isActive:
            raise LsmStateError(f"the query has failed: {_reason(query.exception())}; see {self._where}/{LOG}")
        return ended and sum(sum(epoch.rows_in) for epoch in self._epochs) >= sum(self._feeder.fed.rows)

    def _joined(self, session: SparkSession) -> DataFrame:
        return session.read.parquet(f"{self._where}/{RESULT}")


def batch_join(session: SparkSession, where: str) -> DataFrame:
    """The same join by Spark, over all files at once."""
    impressions, clicks = (
        session.read.schema(columns).parquet(f"{where}/{name}").alias(name)
        for name, columns in zip(INPUTS, _COLUMNS, strict=True)
    )
    condition = (
        "impressions.ad_id = clicks.ad_id and clicks.ts >= impressions.ts "
        f"and clicks.ts <= impressions.ts + interval {WITHIN_S} seconds"
    )
    return impressions.join(clicks, F.expr(condition)).select(
        "impressions.*", F.col("clicks.ts").alias("ts_click"), "user"
    )


def compared(joined: pa.Table, expected: pa.Table) -> Verdict:
    """Compares two results as multisets: every row has to be in both, and equally often."""
    expected = expected.select(joined.column_names).cast(joined.schema)
    counted = [rows.append_column("n", pa.repeat(n, rows.num_rows)) for rows, n in ((joined, 1), (expected, -1))]
    sums = pa.concat_tables(counted).group_by(joined.column_names).aggregate([("n", "sum")]).column("n_sum")
    balance = sums.to_numpy()
    missing, extra = -int(balance[balance < 0].sum()), int(balance[balance > 0].sum())
    return Verdict(joined.num_rows, expected.num_rows, missing, extra)


def _reason(error: StreamingQueryException | None) -> str:
    """Why a query has failed, in a line: what the Python worker raised, or else the first that Spark says."""
    told = str(error).strip() if error is not None else "it has stopped"
    raised = re.findall(r"^[\w.]*(?:Error|Exception)\w*: (.+)", told, re.MULTILINE)
    return str(raised[0]) if raised else told.partition("\n")[0]
