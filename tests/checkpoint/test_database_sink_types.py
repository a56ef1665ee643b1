"""The columns of the database sink: every type comes back as it was, or is refused; a table that is there must fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from iopool import LocalFileSystem
from lsmstate.checkpoint.catalog.address import Address
from lsmstate.checkpoint.connect.database_sink import DatabaseSink
from lsmstate.errors import (
    SchemaError,
)
from tests.support.database_rows import JOB, asked, batch, opened, visible


@pytest.fixture
def sink(url: str) -> Iterator[DatabaseSink]:
    with opened(url) as made:
        yield made


TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-128, 127, None]),
    "uint8": (pa.uint8(), [0, 255, None]),
    "int16": (pa.int16(), [-32768, 32767, None]),
    "uint16": (pa.uint16(), [0, 65535, None]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "uint32": (pa.uint32(), [0, 2**32 - 1, None]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, None]),
    "float32": (pa.float32(), [0.5, -math.inf, None]),
    "float64": (pa.float64(), [1e300, 5e-324, None]),
    "decimal": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.5"), None]),
    "text": (pa.string(), ["", "Köln 'x' \"y\" %s \\ :n \u202e", None]),
    "large": (pa.large_string(), ["a", "b", None]),
    "binary": (pa.binary(), [b"", bytes(range(256)), None]),
    "fixed": (pa.binary(3), [b"abc", b"\0\0\0", None]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "naive": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 456789), None]),
    "seconds": (pa.timestamp("s"), [datetime(2024, 1, 1), datetime(1970, 1, 1), None]),
    "zoned": (
        pa.timestamp("us", "Europe/Berlin"),
        [datetime(2024, 6, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), None],
    ),
}


def test_every_type_comes_back_as_it_was(url: str) -> None:
    sink = DatabaseSink(url, "types")
    sink.open(JOB, None)
    rows = pa.record_batch({name: pa.array(values, kind) for name, (kind, values) in TYPES.items()})
    sink.write(rows)
    sink.pre_commit(1)
    sink.commit(1)
    sink.close()
    engine = Address.parse(LocalFileSystem(), url).engine()
    table = sa.Table("types", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        found = [dict(row._mapping) for row in connection.execute(sa.select(table))]
    engine.dispose()
    for at, row in enumerate(found):
        for name, (_, values) in TYPES.items():
            value, expected = row[name], values[at]
            if expected is not None and name in ("decimal", "uint64"):
                value, expected = Decimal(value), Decimal(expected)
            if isinstance(expected, datetime) and expected.tzinfo is not None and value.tzinfo is None:
                value = value.replace(tzinfo=UTC)
            assert value == expected, name
    again = DatabaseSink(url, "types")  # the table that was made fits what made it
    again.open(JOB, 1)
    again.write(rows)
    again.close()


def test_values_that_the_database_would_change_are_refused(url: str) -> None:
    sqlite = url.startswith("sqlite")
    bad = pa.array([math.nan]) if sqlite else pa.array(["a\0b"])
    for column in (bad, pa.array([10**9 * 86400], pa.timestamp("s"))):
        sink = DatabaseSink(url, "out")
        sink.open(JOB, None)
        with pytest.raises(SchemaError, match="'x'"):
            sink.write(pa.record_batch({"x": column}))
        sink.close()


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.list_(pa.int64()), pa.duration("s"), pa.time32("s"), pa.null()]
)
def test_types_that_a_database_lacks_are_refused(sink: DatabaseSink, kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="'x'"):
        sink.write(pa.record_batch({"x": pa.array([None], kind)}))
    sink.write(batch(1))


def test_other_columns_are_refused_before_anything_is_changed(sink: DatabaseSink, url: str) -> None:
    sink.write(batch(1))
    for bad in (batch(1).select(["n"]), pa.record_batch({"n": ["x"], "word": ["y"]}), "rows"):
        with pytest.raises(SchemaError):
            sink.write(bad)
    sink.pre_commit(1)
    sink.commit(1)
    again = DatabaseSink(url, "out")
    again.open(JOB, 1)
    with pytest.raises(SchemaError, match="does not fit"):
        again.write(pa.record_batch({"n": ["x"], "word": ["y"]}))
    again.close()
    assert visible(url) == [1]


def test_table_that_is_there_is_used_if_it_fits_and_refused_if_not(url: str) -> None:
    big = "INTEGER" if url.startswith("sqlite") else "BIGINT"
    asked(url, f"CREATE TABLE good (word TEXT, extra INTEGER DEFAULT 7 NOT NULL, n {big}, more TEXT)")
    asked(url, "INSERT INTO good (n, word) VALUES (1, 'before')")
    sink = DatabaseSink(url, "good")
    sink.open(JOB, None)
    sink.write(batch(2))
    sink.pre_commit(1)
    sink.commit(1)
    sink.close()
    assert asked(url, "SELECT n, word, extra, more FROM good ORDER BY n") == [
        (1, "before", 7, None),
        (2, "w2", 7, None),
    ]
    wrong = (
        f"n {big}",
        f"n {big}, word INTEGER",
        f"n {big} NOT NULL, word TEXT",
        f"n {big}, word TEXT, x INT NOT NULL",
        f"n {big}, word VARCHAR(2)",
    )
    for number, columns in enumerate(wrong):
        asked(url, f"CREATE TABLE bad{number} ({columns})")
        bad = DatabaseSink(url, f"bad{number}")
        bad.open(JOB, None)
        with pytest.raises(SchemaError, match="does not fit the rows"):
            bad.write(batch(1))
        bad.close()


def test_names_are_data(url: str) -> None:
    name = "a \"b\" 'c' %s :x; DROP"
    sink = DatabaseSink(url, name)
    sink.open("n\0a\u202eme", None)
    columns = ['"', "%(x)s", ":n", "c0", "select", "Ö", "a b", "g", "p"]
    sink.write(pa.record_batch({column: pa.array([at]) for at, column in enumerate(columns)}))
    sink.pre_commit(1)
    sink.commit(1)
    sink.close()
    engine = Address.parse(LocalFileSystem(), url).engine()
    with engine.connect() as connection:
        found = sa.inspect(connection).get_columns(name)
        rows = connection.execute(sa.select(sa.Table(name, sa.MetaData(), autoload_with=connection))).all()
    engine.dispose()
    assert [column["name"] for column in found] == columns
    assert [tuple(row) for row in rows] == [tuple(range(len(columns)))]
    for bad in ("", "x" * 60, "a\0", None):
        with pytest.raises(ValueError, match="name of a table"):
            DatabaseSink(url, bad)  # type: ignore[arg-type]
    for column in ("lsmstate_part", "x" * 64, ""):
        other = DatabaseSink(url, "other")
        other.open(JOB, None)
        with pytest.raises(SchemaError):
            other.write(pa.record_batch({column: [1]}))
        other.close()
