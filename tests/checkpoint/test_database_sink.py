"""The database sink, on SQLite and a real PostgreSQL: rows of committed epochs are there, once; all others are not."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from iopool import LocalFileSystem
from lsmstate.checkpoint.catalog.address import Address
from lsmstate.checkpoint.connect import database_sink
from lsmstate.checkpoint.connect.database_sink import DatabaseSink
from lsmstate.errors import (
    CheckpointError,
    EpochError,
    FencedError,
    NotAStateError,
    SchemaError,
    StoreClosedError,
)
from tests.support.postgres import PostgresServer

JOB = "job/out"


def batch(*numbers: int) -> pa.RecordBatch:
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
    return sorted(n for (n,) in asked(url, f'SELECT n FROM "{table}"'))


def staged(url: str, table: str = "out") -> int:
    ((count,),) = asked(url, f'SELECT count(*) FROM "{table}__staged"')
    return int(count)


@pytest.fixture
def url(catalog_url: str) -> str:
    return catalog_url


@pytest.fixture
def sink(url: str) -> Iterator[DatabaseSink]:
    opened = DatabaseSink(url, "out")
    opened.open(JOB, None)
    yield opened
    opened.close()


@pytest.fixture(params=[1, 2, 1000])
def chunk_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(database_sink, "_CHUNK_ROWS", request.param)
    return int(request.param)


def test_rows_are_visible_after_commit_and_not_before(sink: DatabaseSink, url: str, chunk_rows: int) -> None:
    sink.write(batch(1, 2))
    sink.write(batch(3))
    sink.pre_commit(1)
    sink.write(batch(4))  # of the next epoch
    assert visible(url) == []
    sink.commit(1)
    sink.commit(1)
    assert visible(url) == [1, 2, 3]
    sink.pre_commit(2)
    sink.commit(2)
    sink.pre_commit(3)  # without rows
    sink.commit(3)
    assert visible(url) == [1, 2, 3, 4]
    assert staged(url) == 0
    assert asked(url, "SELECT * FROM lsmstate_sink_parts") == []


def test_rows_of_an_aborted_epoch_go_with_the_next_one(sink: DatabaseSink, url: str) -> None:
    sink.write(batch(1))
    sink.pre_commit(1)
    sink.abort(1)
    sink.abort(1)
    sink.write(batch(2))
    sink.pre_commit(1)
    sink.abort(1)
    sink.write(batch(3))
    sink.pre_commit(2)
    assert visible(url) == []
    sink.commit(2)
    assert visible(url) == [1, 2, 3]


@pytest.mark.parametrize(("committed", "seen"), [(0, []), (None, []), (1, [1]), (5, [1])])
def test_open_rolls_forward_what_is_decided_and_back_what_is_not(
    url: str, committed: int | None, seen: list[int]
) -> None:
    sink = DatabaseSink(url, "out")
    sink.open(JOB, None)
    sink.write(batch(1))
    sink.pre_commit(1)
    sink.write(batch(2))
    sink.close()
    for _ in range(2):
        again = DatabaseSink(url, "out")
        again.open(JOB, committed)
        assert visible(url) == seen
        assert staged(url) == 0
        again.close()


def test_replaced_sink_is_fenced_and_publishes_nothing(sink: DatabaseSink, url: str) -> None:
    sink.write(batch(1))
    sink.pre_commit(1)
    new = DatabaseSink(url, "out")
    new.open(JOB, None)
    sink.write(batch(2))  # waits in memory
    for call in (lambda: sink.commit(1), lambda: sink.pre_commit(2)):
        with pytest.raises(FencedError):
            call()
    new.write(batch(3))
    new.pre_commit(1)
    with pytest.raises(FencedError):
        sink.commit(1)
    new.commit(1)
    new.close()
    third = DatabaseSink(url, "out")
    third.open(JOB, 1)
    third.close()
    assert visible(url) == [3]


def test_job_that_stands_earlier_than_the_table_is_refused(sink: DatabaseSink, url: str) -> None:
    for epoch in (1, 2):
        sink.write(batch(epoch))
        sink.pre_commit(epoch)
        sink.commit(epoch)
    sink.write(batch(3))
    for committed in (None, 1):
        with pytest.raises(EpochError, match="cannot be taken back"):
            DatabaseSink(url, "out").open(JOB, committed)
    with pytest.raises(NotAStateError, match="belongs to"):
        DatabaseSink(url, "out").open("another", 2)
    sink.pre_commit(3)  # nobody was fenced
    sink.commit(3)
    assert visible(url) == [1, 2, 3]


def test_two_sinks_of_one_database_do_not_meet(sink: DatabaseSink, url: str) -> None:
    other = DatabaseSink(url, "other")
    other.open(JOB, None)
    sink.write(batch(1))
    other.write(batch(10))
    sink.pre_commit(1)
    other.pre_commit(1)
    other.commit(1)
    other.close()
    assert (visible(url), visible(url, "other")) == ([], [10])
    sink.commit(1)
    assert (visible(url), visible(url, "other")) == ([1], [10])


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


def test_misuse_is_a_typed_error(sink: DatabaseSink, url: str) -> None:
    closed = DatabaseSink(url, "other")
    for call in (lambda: closed.write(batch(1)), lambda: closed.pre_commit(1), lambda: closed.commit(1)):
        with pytest.raises(StoreClosedError):
            call()
    with pytest.raises(EpochError, match="not pre-committed"):
        sink.commit(1)
    sink.pre_commit(2)
    for bad in (2, 1, 0, True, "1"):
        with pytest.raises(EpochError):
            sink.pre_commit(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name"):
        sink.open("", None)


def test_credentials_and_rows_are_never_shown(url: str, postgres: PostgresServer) -> None:
    secret = DatabaseSink("postgresql://someone:hunter2@127.0.0.1:1/db", "out")
    assert "hunter2" not in repr(secret)
    with pytest.raises(CheckpointError) as caught:
        secret.open(JOB, None)
    assert "hunter2" not in str(caught.value)
    asked(url, "CREATE TABLE uniq (n BIGINT UNIQUE, word TEXT)")
    sink = DatabaseSink(url, "uniq")
    sink.open(JOB, None)
    sink.write(batch(424242, 424242))
    sink.pre_commit(1)
    with pytest.raises(CheckpointError) as caught:
        sink.commit(1)
    assert "424242" not in str(caught.value)
    assert postgres.password not in str(caught.value)
    asked(url, "DELETE FROM uniq__staged")  # what a person would do about it
    sink.commit(1)
    sink.close()


def test_server_that_goes_away_loses_nothing(postgres: PostgresServer) -> None:
    url = postgres.schema()
    sink = DatabaseSink(url, "out")
    sink.open(JOB, None)
    sink.write(batch(1))
    with postgres.down(), pytest.raises(CheckpointError, match="down"):
        sink.pre_commit(1)
    sink.pre_commit(1)
    sink.write(batch(2))
    with postgres.down():  # restarted between two calls: the connection is dead, and nobody notices
        pass
    sink.commit(1)
    sink.pre_commit(2)
    sink.commit(2)
    sink.close()
    assert visible(url) == [1, 2]


def test_answers_that_are_lost_change_nothing(sink: DatabaseSink, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction is run twice, as after a connection that broke when the commit was done already."""
    assert sink._link is not None
    real = type(sink._link).write
    monkeypatch.setattr(type(sink._link), "write", lambda self, work: (real(self, work), real(self, work))[1])
    monkeypatch.setattr(database_sink, "_CHUNK_ROWS", 2)
    for epoch in range(1, 4):
        sink.write(batch(*range(epoch * 10, epoch * 10 + 5)))
        sink.pre_commit(epoch)
        if epoch == 2:
            sink.abort(2)
            sink.pre_commit(2)
        sink.commit(epoch)
    assert visible(url) == [n for epoch in (10, 20, 30) for n in range(epoch, epoch + 5)]
    again = DatabaseSink(url, "out")
    again.open(JOB, 3)
    again.close()
    assert len(visible(url)) == 15


@pytest.mark.parametrize("seed", range(2))
def test_random_lives_leave_exactly_the_rows_of_decided_epochs(url: str, seed: int) -> None:
    rng, decided, rows, next_row = random.Random(seed), 0, [], 0
    sink = DatabaseSink(url, "out")
    sink.open(JOB, None)
    sink.write(batch())
    waiting: list[int] = []
    for _ in range(25):
        act = rng.choice(("write", "write", "checkpoint", "abort", "die", "die_decided"))
        if act == "write":
            sink.write(batch(next_row))
            waiting.append(next_row)
            next_row += 1
        elif act == "die":
            waiting = []
            sink.close()
            sink.open(JOB, decided)
        else:
            sink.pre_commit(decided + 1)
            if act == "abort":
                sink.abort(decided + 1)
                continue
            decided, rows, waiting = decided + 1, rows + waiting, []
            if act == "checkpoint":
                sink.commit(decided)
            else:
                sink.close()
                sink.open(JOB, decided)
        assert visible(url) == rows, f"seed {seed}"
    sink.close()


def test_two_sinks_that_fight_for_a_table_never_mix(url: str) -> None:
    """Each opens, writes and commits until it is fenced; the catalog of this test decides who may."""
    lock, decided, rows, errors = threading.Lock(), [0], [], []

    def live(number: int) -> None:
        try:
            for round_ in range(5):
                sink = DatabaseSink(url, "out")
                with lock:  # the catalog: a new incarnation, and where the job stands
                    sink.open(JOB, decided[0])
                    mine[0] = number
                row = number * 1000 + round_
                try:
                    sink.write(batch(row))
                    with lock:
                        epoch = decided[0] + 1
                    sink.pre_commit(epoch)
                    with lock:
                        if mine[0] != number or decided[0] != epoch - 1:
                            continue
                        decided[0] = epoch
                        rows.append(row)
                    sink.commit(epoch)
                except FencedError:
                    pass
                finally:
                    sink.close()
        except Exception as error:
            errors.append(error)

    mine = [0]
    first = DatabaseSink(url, "out")
    first.open(JOB, None)
    first.write(batch())
    first.close()
    threads = [threading.Thread(target=live, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    last = DatabaseSink(url, "out")
    last.open(JOB, decided[0])
    last.close()
    assert visible(url) == sorted(rows)


def test_file_of_sqlite_is_private_and_synced(tmp_path: Path) -> None:
    sink = DatabaseSink(f"sqlite:///{tmp_path}/out.db", "out")
    sink.open(JOB, None)
    sink.write(batch(1))
    sink.close()
    assert (tmp_path / "out.db").stat().st_mode & 0o777 == 0o600
