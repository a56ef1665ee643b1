"""The database sink where answers are lost, servers restart, processes die and two sinks fight: rows come once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from lsmstate.checkpoint.connect import database_sink
from lsmstate.checkpoint.connect.database_sink import DatabaseSink
from lsmstate.errors import (
    CheckpointError,
    FencedError,
)
from tests.support.database_rows import JOB, asked, batch, opened, visible
from tests.support.postgres import PostgresServer


@pytest.fixture
def sink(url: str) -> Iterator[DatabaseSink]:
    with opened(url) as made:
        yield made


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
