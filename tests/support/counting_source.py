"""A streaming source in Python that can seek: rows are a function of their number, and `start` says which comes first.

    session.dataSource.register(CountingSource)
    session.readStream.format("counting").option("side", 0).option("start", 0).option("end", 600).load()

Of each batch there are `step` rows; times go on by a tenth of a second a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in."""


START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
STEP = 100


def row_of(side: int, number: int) -> tuple[str, int, str]:
    """A row by its number: key, time in microseconds, and a value that tells which it is."""
    return f"key-{number * (7 + 4 * side) % 23}", START_US + number * 100_000, f"{'lr'[side]}{number}"


class CountingSource(DataSource):
    """Options: side, start (the first row), end (all rows that there will ever be), step (rows of a batch)."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        side = int(self.options["side"])
        return f"k string, ts_us bigint, {('lv', 'rv')[side]} string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return CountingReader({name: int(self.options.get(name, STEP)) for name in ("side", "start", "end", "step")})


class Span(InputPartition):
    """Rows by number, from `first` on and before `end`."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(first)
        self.first, self.end = first, end


class CountingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are the number of the next row."""

    def __init__(self, options: dict[str, int]) -> None:
        self.options = options
        self.at = options["start"]

    def initialOffset(self) -> dict[str, int]:
        return {"next": self.options["start"]}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        if start is not None:
            self.at = int(start["next"])
        return {"next": min(self.at + self.options["step"], self.options["end"])}

    def commit(self, end: dict[str, int]) -> None:
        self.at = int(end["next"])

    def prepareForTriggerAvailableNow(self) -> None:
        """All rows are there from the beginning."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Span(start["next"], end["next"])] if start["next"] < end["next"] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, str]]:
        assert isinstance(partition, Span)
        return iter([row_of(self.options["side"], number) for number in range(partition.first, partition.end)])
