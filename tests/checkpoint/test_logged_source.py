"""A source that cannot replay, behind a log: every batch that was handed out comes again, once, in its order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from unittest import mock

import pyarrow as pa
import pytest

from lsmstate import CheckpointError, CorruptionError, FencedError, NotAStateError, SchemaError
from lsmstate.checkpoint.connect.logged_source import LoggedSource
from lsmstate.checkpoint.connect.table_source import TableSource
from lsmstate.engine.wal_chain import Link, Segments
from lsmstate.engine.wal_frames import Frame
from tests.support.crash import crash_images, crash_points
from tests.support.crash_check import unsynced_lost
from tests.support.odd_values import ODD
from tests.support.simfs import SimFileSystem

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("tags", pa.dictionary(pa.int8(), pa.string()))])
DIR = "/logs/of/a source"


def rows(*numbers: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    data = {"n": list(numbers), "text": [f"row {n}" if n % 2 else None for n in numbers], "tags": ["a"] * len(numbers)}
    return pa.RecordBatch.from_pydict({name: data[name] for name in schema.names}, schema=schema)


class Wire:
    """Gives each batch once, whoever asks: what was read is gone."""

    offsets_told: Mapping[str, str] | None = None

    def __init__(self, *batches: pa.RecordBatch, schema: pa.Schema = SCHEMA) -> None:
        self.schema = schema
        self._batches, self.opened, self.ended = list(batches), 0, False

    def open(self, offsets: Mapping[str, str] | None) -> None:
        self.opened += 1
        self.offsets_told = offsets

    def read(self) -> pa.RecordBatch | None:
        if self._batches:
            return self._batches.pop(0)
        self.ended = True
        return None

    def offsets(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        pass


def numbers(source: LoggedSource, count: int | None = None) -> list[int]:
    """What the next batches hold; all there are unless told how many."""
    found: list[int] = []
    while (count is None or count > 0) and (batch := source.read()) is not None:
        found += batch.column(0).to_pylist()
        count = None if count is None else count - 1
    return found


def opened(wire: Wire | TableSource, fs: SimFileSystem, offsets: Mapping[str, str] | None = None) -> LoggedSource:
    source = LoggedSource(wire, DIR, fs)
    source.open(offsets)
    return source


def test_batches_after_the_offsets_come_again_and_then_the_live_ones() -> None:
    fs, wire = SimFileSystem(), Wire(*(rows(n, -n) for n in range(1, 6)))
    source = opened(wire, fs)
    marks = [source.offsets()]
    for n in range(1, 4):
        assert numbers(source, 1) == [n, -n]
        marks.append(source.offsets())
    assert marks[0] == {"wal": "0"}
    for done, mark in enumerate(marks):
        fs = unsynced_lost(fs)
        again = opened(Wire(rows(99)), fs.copy(), mark)
        assert numbers(again) == [m for n in range(done + 1, 4) for m in (n, -n)] + [99]
        assert again.ended
    last = opened(wire, fs, marks[-1])
    assert not last.ended
    assert numbers(last) == [4, -4, 5, -5]


def test_batch_comes_back_as_it_was() -> None:
    fs, sent = SimFileSystem(), rows(*range(50)).slice(7, 20)
    numbers(opened(Wire(sent), fs))
    got = opened(Wire(), fs).read()
    assert got is not None
    assert got.equals(sent)


@pytest.mark.parametrize("array", ODD.values(), ids=ODD)
def test_values_that_arrow_would_not_make_come_back_as_they_were(array: pa.Array) -> None:
    fs, sent = SimFileSystem(), pa.record_batch({"v": array})
    assert opened(Wire(sent, schema=sent.schema), fs).read() is sent
    assert opened(Wire(schema=sent.schema), unsynced_lost(fs)).read() == sent


def test_source_that_can_seek_goes_on_after_what_was_logged() -> None:
    fs = SimFileSystem()
    table = pa.Table.from_batches([rows(*range(10))])
    source = opened(TableSource(table, 3), fs)
    assert numbers(source, 2) == [0, 1, 2, 3, 4, 5]
    mark = source.offsets()
    assert numbers(source, 1) == [6, 7, 8]
    again = opened(TableSource(table, 3), unsynced_lost(fs), mark)
    assert numbers(again) == [6, 7, 8, 9]
    again.forget(mark)
    assert numbers(opened(TableSource(table, 3), fs, source.offsets())) == [9]


def test_offsets_stay_the_same_while_nothing_is_read_and_repeat_when_replayed() -> None:
    fs = SimFileSystem()
    source = opened(Wire(rows(1), rows(2), rows(3)), fs)
    told = []
    while source.read() is not None:
        told.append(source.offsets())
    for _ in range(3):
        again = opened(Wire(), fs)
        assert again.offsets() == {"wal": "0"}
        replayed = []
        while again.read() is not None:
            replayed.append(again.offsets())
        assert replayed == told


def test_forgotten_batches_leave_the_disk_and_cannot_be_asked_for() -> None:
    fs = SimFileSystem()
    with mock.patch("lsmstate.checkpoint.connect.logged_source._ROLL_BYTES", 1):
        source = opened(Wire(*(rows(n) for n in range(20))), fs)
        first = source.offsets()
        for _ in range(20):
            assert source.read() is not None
            source.forget(source.offsets())
            assert len(fs.list_dir(DIR)) <= 2
    last = source.offsets()
    source.close()
    assert numbers(opened(Wire(rows(7)), fs, last)) == [7]
    for gone in (None, first):
        with pytest.raises(CheckpointError, match="dropped"):
            opened(Wire(), fs, gone)


def test_offsets_of_another_source_or_beyond_the_log_are_refused() -> None:
    fs = SimFileSystem()
    numbers(opened(Wire(rows(1)), fs))
    for wrong in ({"rows": "3"}, {"wal": "-1"}, {"wal": "123456"}):
        with pytest.raises(CheckpointError):
            opened(Wire(), fs, wrong)


def test_log_of_another_schema_is_refused() -> None:
    fs = SimFileSystem()
    numbers(opened(Wire(rows(1)), fs))
    other = Wire()
    other.schema = pa.schema([("n", pa.int64())])
    with pytest.raises(NotAStateError):
        opened(other, fs)


def test_batch_that_does_not_fit_the_schema_is_not_logged() -> None:
    narrow = SCHEMA.remove(2)
    source = opened(Wire(rows(1, schema=narrow)), SimFileSystem())
    with pytest.raises(SchemaError):
        source.read()


def test_source_whose_log_another_has_opened_hands_out_nothing_more() -> None:
    fs = SimFileSystem()
    zombie = opened(Wire(rows(1), rows(2)), fs.spawn())
    assert numbers(zombie, 1) == [1]
    other = opened(Wire(rows(3)), fs.spawn())
    with pytest.raises(FencedError):
        zombie.read()
    assert numbers(other)[:1] == [1]


def test_crash_after_any_operation_loses_no_batch_that_was_handed_out() -> None:
    fs, handed = SimFileSystem(), [(0, 0)]  # the journal's length, and how many batches were handed out by then
    with mock.patch("lsmstate.checkpoint.connect.logged_source._ROLL_BYTES", 200):
        source = opened(Wire(*(rows(n) for n in range(1, 7))), fs)
        for n in range(1, 7):
            source.read()
            handed.append((len(fs.journal), n))
            if n == 3:
                source.forget({"wal": "0"})
    rng = random.Random(1)
    for at in crash_points(fs):
        least = max(n for length, n in handed if length <= at)
        for image in crash_images(fs, at, rng, 4):
            again = opened(Wire(rows(100)), image)
            found = numbers(again)
            assert found[:-1] == list(range(1, len(found))), f"after {at} entries"
            assert len(found) - 1 >= least
            final = opened(Wire(), unsynced_lost(image))
            assert numbers(final) == found


def test_error_while_logging_loses_no_batch() -> None:
    for index in range(60):
        fs = SimFileSystem()
        source = opened(Wire(rows(1), rows(2), rows(3)), fs)
        failing = fs.ops + index

        def fault(op: str, path: str, at: int, failing: int = failing) -> None:
            if at == failing and op in ("write", "create"):
                raise OSError(28, "full", path)

        fs.fault = fault
        found: list[int] = []
        while not source.ended:
            try:
                found += numbers(source, 1)
            except OSError:
                continue
        fs.fault = None
        assert found == [1, 2, 3]
        assert numbers(opened(Wire(), unsynced_lost(fs))) == found


def test_replay_that_includes_the_position_is_caught() -> None:
    """A mistake made on purpose: then what the first test here shows would not hold."""
    records = Segments.records

    def inclusive(segments: Segments, links: Sequence[Link], end: int, after: int) -> Iterator[tuple[str, Frame]]:
        return records(segments, links, end, max(after - 1, 0))

    with mock.patch.object(Segments, "records", inclusive), pytest.raises((AssertionError, CorruptionError)):
        test_batches_after_the_offsets_come_again_and_then_the_live_ones()
