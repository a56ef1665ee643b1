"""The database sink, on SQLite and a real PostgreSQL: rows of committed epochs are there, once; all others are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lsmstate.checkpoint.connect import database_sink
from lsmstate.checkpoint.connect.database_sink import DatabaseSink
from lsmstate.errors import (
    EpochError,
    FencedError,
    NotAStateError,
    StoreClosedError,
)
from tests.support.database_rows import JOB, asked, batch, opened, staged, visible


@pytest.fixture
def sink(url: str) -> Iterator[DatabaseSink]:
    with opened(url) as made:
        yield made


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


def test_file_of_sqlite_is_private_and_synced(tmp_path: Path) -> None:
    sink = DatabaseSink(f"sqlite:///{tmp_path}/out.db", "out")
    sink.open(JOB, None)
    sink.write(batch(1))
    sink.close()
    assert (tmp_path / "out.db").stat().st_mode & 0o777 == 0o600
