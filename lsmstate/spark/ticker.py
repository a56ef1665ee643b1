"""The ticker: a streaming source without rows that makes Spark run a batch when it is told to.

United with the two inputs, it lets an epoch happen without new data. Its offset is the highest number among the empty
files in the state's `ticks` directory; whoever wants a batch creates the next one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from iopool import FileSystem, LocalFileSystem
from lsmstate.errors import LsmStateError
from lsmstate.join.barrier import epochs_begun, moves_on
from lsmstate.join.home import TICKS, Home
from lsmstate.join.lines import newest_line
from lsmstate.join.pace import Pace
from lsmstate.join.reading import job_of

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    _NEEDS_WRAPPER = False
except ImportError:  # Spark 4.1

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in."""

    _NEEDS_WRAPPER = True
_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "lsmstate_ticker"


class Ticker(DataSource):
    """`spark.readStream.format("lsmstate_ticker")`, with the options `path` and `columns`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the streams it is united with."""
        return StructType.fromJson(json.loads(self.options["columns"]))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The reader of its offsets."""
        told = self.options.get("pace")
        pace = None
        if told is not None:
            delays, idle_epochs, idle_us = json.loads(told)
            pace = Pace((delays[0], delays[1]), idle_epochs, idle_us)
        return TickReader(self.options["path"], pace)


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets that grow when told, and no rows."""

    def __init__(self, path: str, pace: Pace | None = None) -> None:
        """With a pace, it ticks by itself when the watermark can move on: something waits for it."""
        self._path, self._pace = path, pace
        self._considered = 0
        self._newest: int | None = None
        self._committed = False

    def initialOffset(self) -> dict[str, int]:
        """Before the first tick."""
        return {"tick": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # Spark 4.1 gives no arguments
        """The last tick."""
        fs = LocalFileSystem()
        last = last_tick(fs, self._path)
        home = Home(fs, self._path)
        self._check_progress_is_not_asynchronous(home)
        if self._pace is not None and self._newest not in (None, self._considered):
            moves = moves_on(home, job_of(home).partitions, self._pace)
            if moves is not None:
                self._considered = self._newest or 0
            if moves:
                tick(self._path)
                last = last_tick(fs, self._path)
        return {"tick": last}

    def commit(self, end: dict[str, int]) -> None:
        """Spark has logged a batch."""
        self._committed = True

    def _check_progress_is_not_asynchronous(self, home: Home) -> None:
        """Spark commits to its sources before it runs a further batch, unless it tracks its progress asynchronously."""
        line = newest_line(home)
        newest = max(epochs_begun(home, line), default=0)
        if self._newest is not None and newest > max(self._newest, line.base + 1) and not self._committed:
            raise LsmStateError(
                f"{self._path}: the query tracks its progress asynchronously, so that after a restart its checkpoint "
                "would be older than the state: remove the option asyncProgressTrackingEnabled, and restart the "
                "application"
            )
        self._newest, self._committed = newest, False

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing to prepare: ticks that come while the query drains its sources are obeyed too."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """None: there are no rows."""
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Nothing."""
        return iter(())


def ticker_of(session: SparkSession, path: str, columns: StructType, pace: Pace | None) -> DataFrame:
    """The ticker of a state as a stream with these columns. With a pace it ticks by itself, as the watermark moves.

    Where Spark cannot ask a Python source whether it knows availableNow, it would on its account run all input of the
    other sources in one batch; a setting of the session lets it go on in batches.
    """
    session.dataSource.register(Ticker)
    if _NEEDS_WRAPPER:
        session.conf.set(_WRAPPER, "true")
    reader = session.readStream.format(FORMAT).option("path", path).option("columns", columns.json())
    if pace is not None:
        reader = reader.option("pace", json.dumps([pace.delays_us, pace.idle_epochs, pace.idle_us]))
    return reader.load()


def last_tick(fs: FileSystem, path: str) -> int:
    """The number of ticks so far."""
    try:
        return max(Home(fs, path).numbers(TICKS), default=0)
    except FileNotFoundError:
        raise LsmStateError(
            f"{path}: the state is gone. Bring it back, or start anew with another state= and checkpointLocation"
        ) from None


def tick(state: str) -> None:
    """Asks the query that works on this state for one more batch, without data. It evicts what the watermark allows."""
    fs = LocalFileSystem()
    home = Home(fs, fs.resolve(state))
    job_of(home)
    numbers = home.numbers(TICKS)
    with contextlib.suppress(FileExistsError):  # another has asked at the same moment: one batch serves both
        fs.create(f"{home.path}/{TICKS}/{max(numbers, default=0) + 1:012d}").close()
    for old in numbers[:-1]:
        home.remove(TICKS, f"{old:012d}")
