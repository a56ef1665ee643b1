"""Rows of the database sink, a sink that is closed in the end, and what another connection sees of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from iopool import LocalFileSystem
from lsmstate.checkpoint.catalog.address import Address
from lsmstate.checkpoint.connect.database_sink import DatabaseSink

JOB = "job/out"


def batch(*numbers: int) -> pa.RecordBatch:
    """Rows of two columns."""
    return pa.record_batch(
        {"n": pa.array(numbers, pa.int64()), "word": pa.array([f"w{n}" for n in numbers], pa.string())}
    )


def asked(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What another connection sees."""
    address = Address.parse(LocalFileSystem(), url)
    if address.is_sqlite:
        address.make_file(LocalFileSystem())
    engine = address.engine()
    with engine.connect() as connection:
        result = connection.exec_driver_sql(statement)
        rows = [tuple(row) for row in result] if result.returns_rows else []
        connection.commit()
    engine.dispose()
    return rows


def visible(url: str, table: str = "out") -> list[int]:
    """The rows that are in a table."""
    return sorted(n for (n,) in asked(url, f'SELECT n FROM "{table}"'))


def staged(url: str, table: str = "out") -> int:
    """How many rows wait to be published."""
    ((count,),) = asked(url, f'SELECT count(*) FROM "{table}__staged"')
    return int(count)


@contextmanager
def opened(url: str) -> Iterator[DatabaseSink]:
    """A sink to the table `out`, closed in the end."""
    sink = DatabaseSink(url, "out")
    sink.open(JOB, None)
    yield sink
    sink.close()
