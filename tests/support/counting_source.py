"""A streaming source in Python that can seek: rows are a function of their number, and `start` says which comes first.

    session.dataSource.register(CountingSource)
    session.readStream.format("counting").option("start", 0).option("end", 600).load()

Even rows are those of the left side, odd ones those of the right. Times go on by a twentieth of a second a row.
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
STEP = 200  # rows of a batch


def row_of(number: int) -> tuple[int, str, int, str]:
    """A row by its number: side, key, time in microseconds, and a value that tells which it is."""
    side = number % 2
    return side, f"key-{number // 2 * (7 + 4 * side) % 23}", START_US + number * 50_000, f"{'lr'[side]}{number}"


class CountingSource(DataSource):
    """Options: start (the first row) and end (all rows that there will ever be)."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "side int, k string, ts_us bigint, v string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return CountingReader(int(self.options["start"]), int(self.options["end"]))


class Span(InputPartition):
    """Rows by number, from `first` on and before `end`."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(first)
        self.first, self.end = first, end


class CountingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are the number of the next row."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end, self.at = start, end, start

    def initialOffset(self) -> dict[str, int]:
        return {"next": self.start}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        if start is not None:
            self.at = int(start["next"])
        return {"next": min(self.at + STEP, self.end)}

    def commit(self, end: dict[str, int]) -> None:
        self.at = int(end["next"])

    def prepareForTriggerAvailableNow(self) -> None:
        """All rows are there from the beginning."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Span(start["next"], end["next"])] if start["next"] < end["next"] else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str, int, str]]:
        assert isinstance(partition, Span)
        return iter([row_of(number) for number in range(partition.first, partition.end)])
