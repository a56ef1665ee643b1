"""What the crash tests run: a store on a simulated disk, driven beside a model that knows what must be there.

A `Driver` does everything twice: to the store, and to a plain list of rows. Whatever the store acknowledges goes
into a `Story` with the length of the journal before and after the call, so that of every point of the journal it
is known which states a crash there may leave. Threading: one thread; spills run at once, in `InlinePool`, so that
the same workload always gives the same journal.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar
from unittest import mock

import pyarrow as pa
import pytest

from iopool import FileSystem, Lane, LaneMetrics, Ticket
from lsmstate import FencedError, Options, Side, StateStore
from lsmstate.engine.view import View
from tests.support.simfs import SimFileSystem

T = TypeVar("T")
Row = tuple[object, int, object]  # key, ts, value
Rows = tuple[tuple[Row, ...], ...]  # by side, sorted
Epochs = Mapping[int, Rows]  # what a state holds: its retained epochs, the last one being the present

SECOND = 1_000_000
RETENTION = (timedelta(seconds=10), timedelta(seconds=20))
SCHEMAS = (
    pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.string())]),
    pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.int64())]),
)
SIDES = tuple(
    Side(name, schema, ["k"], "ts", kept)
    for name, schema, kept in zip(("numbers", "words"), SCHEMAS, RETENTION, strict=True)
)


class InlinePool:
    """A pool without threads: a job is done when `submit` returns."""

    def submit(self, lane: str, job: Callable[[], T], *, timeout: float | None = None) -> Ticket[T]:
        ticket = Ticket(job, lambda: None)
        ticket.end(ticket.run())
        return ticket

    def metrics(self) -> dict[Lane, LaneMetrics]:
        return {"spill": LaneMetrics(), "compaction": LaneMetrics()}

    def close(self, timeout: float = 0.0) -> bool:
        return True


def batch(side: int, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as the store takes them."""
    schema = SCHEMAS[side]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_of(view: View | StateStore) -> Rows:
    """All rows that can be read, sorted."""
    return tuple(tuple(sorted(row for part in view.scan(n) for row in _plain(part))) for n in range(len(SIDES)))


def _plain(part: pa.RecordBatch) -> Iterator[Row]:
    times = part.column(1).cast(pa.int64())
    return zip(part.column(0).to_pylist(), times.to_pylist(), part.column(2).to_pylist(), strict=True)


@dataclass(frozen=True)
class Moment:
    """The model: rows that were written and not removed, and the watermark that hides some of them."""

    rows: Rows = ((),) * len(SIDES)
    watermark: int | None = None

    def visible(self) -> Rows:
        """What a scan must give."""
        if self.watermark is None:
            return self.rows
        cuts = [self.watermark - kept // timedelta(microseconds=1) for kept in RETENTION]
        return tuple(tuple(row for row in rows if row[1] > cut) for rows, cut in zip(self.rows, cuts, strict=True))

    def with_rows(self, side: int, rows: Sequence[Row]) -> Moment:
        """The moment after rows of a side were replaced."""
        changed = list(self.rows)
        changed[side] = tuple(sorted(rows))
        return replace(self, rows=tuple(changed))


@dataclass(frozen=True)
class Publication:
    """A state that was acknowledged: the journal's length when the call began and when it returned."""

    begun: int
    acknowledged: int
    epochs: Epochs


@dataclass(frozen=True)
class Candidate:
    """An epoch that was prepared: until the call that `ended` it any handle can commit it, and then has `epochs`."""

    begun: int
    prepared: int
    ended: int
    epoch: int
    epochs: Epochs


@dataclass
class Story:
    """What happened to one state directory. `created` by open with sides; otherwise it is a branch."""

    path: str
    created: bool
    publications: list[Publication] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)

    def allowed(self, at: int) -> list[Epochs | None]:
        """What a crash after `at` entries of the journal may leave; None is no state at all."""
        done = [p.epochs for p in self.publications if p.acknowledged <= at]
        under_way = [p.epochs for p in self.publications if p.begun < at < p.acknowledged]
        return [*(done[-1:] or [None]), *under_way]

    def allows(self, epochs: Epochs | None, at: int) -> bool:
        """Whether a crash there may leave this; where nothing need be, a new and empty state may."""
        return any(epochs == one or (one is None and epochs == {}) for one in self.allowed(at))


class Driver:
    """One handle and its model. `again` gives another handle on the same state, as after a restart."""

    def __init__(
        self, disk: SimFileSystem, path: str, options: Options, seen: FileSystem | None = None, attempt: str = "w0"
    ) -> None:
        """`disk` keeps the journal; the store sees `seen`, which may lie."""
        self.disk, self.seen, self.options = disk, seen or disk, options
        self.story = Story(path, created=True)
        self.stories = [self.story]
        self.now = Moment()
        self._past: dict[int, Moment] = {}
        self._prepared: tuple[int, int, Moment, StateStore] | None = None
        begun = len(disk.journal)
        self.store = self._open(attempt)
        self._publish(begun, {})

    def again(self, attempt: str) -> Driver:
        """A new handle at the last publication; this one is only left alone, as a zombie is."""
        other = object.__new__(Driver)
        other.__dict__.update(self.__dict__)
        other._past = dict(self._past)
        other.now = self._past[max(self._past)] if self._past else Moment()
        other.store = other._open(attempt)
        return other

    def reopen(self) -> None:
        """Goes on with a new handle. Requires: all is committed."""
        self.store = self._open(f"w{self.disk.ops}")

    def _open(self, attempt: str) -> StateStore:
        pool = InlinePool()
        return StateStore.open(self.story.path, SIDES, self.options, fs=self.seen, pool=pool, attempt=attempt)

    # ---- what happens in an epoch

    def append(self, side: int, *rows: Row) -> None:
        self.store.append(side, batch(side, rows))
        self.now = self.now.with_rows(side, [*self.now.rows[side], *rows])

    def remove(self, side: int, start: int, end: int) -> None:
        self.store.remove(side, start, end)
        self.now = self.now.with_rows(side, [row for row in self.now.rows[side] if not start <= row[1] < end])

    def advance(self, ts: int) -> None:
        self.store.advance_watermark(ts)
        self.now = replace(self.now, watermark=max(ts, self.now.watermark or ts))

    # ---- epochs

    def epoch(self, epoch: int) -> None:
        begun = len(self.disk.journal)
        self.store.snapshot_epoch(epoch)
        self._commit(begun, epoch, self.now)

    def finish(self, epoch: int) -> None:
        """Commits what a failed `epoch` had prepared."""
        begun = len(self.disk.journal)
        self.store.commit(epoch)
        self._commit(begun, epoch, self.now)

    def prepare(self, epoch: int) -> None:
        begun = len(self.disk.journal)
        self.store.prepare(epoch)
        self._prepared = (begun, len(self.disk.journal), self.now, self.store)

    def commit(self, epoch: int) -> None:
        assert self._prepared is not None
        begun = len(self.disk.journal)
        self.store.commit(epoch)
        *prepared, moment, preparer = self._prepared
        if preparer is not self.store:
            self.now = moment
        self._commit(begun, epoch, moment)
        published = self.story.publications[-1].epochs
        self.story.candidates.append(Candidate(*prepared, begun, epoch, published))

    def abort(self, epoch: int) -> None:
        assert self._prepared is not None
        *prepared, moment, _ = self._prepared
        would_be = self._retained({**self._past, epoch: moment})
        self.story.candidates.append(Candidate(*prepared, len(self.disk.journal), epoch, would_be))
        self.store.abort(epoch)
        self._prepared = None

    def fenced(self, epoch: int, since: int) -> None:
        """The handle finds out that it is a zombie: another one published after `since` entries of the journal."""
        assert self._prepared is not None
        *prepared, moment, _ = self._prepared
        would_be = self._retained({**self._past, epoch: moment})
        self.story.candidates.append(Candidate(*prepared, since, epoch, would_be))
        with pytest.raises(FencedError):
            self.store.commit(epoch)

    def restore(self, epoch: int) -> None:
        begun = len(self.disk.journal)
        self.store.restore(epoch)
        self._past = {e: moment for e, moment in self._past.items() if e <= epoch}
        self.now, self._prepared = self._past[epoch], None
        self._publish(begun, self._visible(self._past))

    def branch(self, epoch: int, path: str) -> None:
        story = Story(path, created=False)
        begun = len(self.disk.journal)
        self.store.branch(epoch, path)
        story.publications.append(Publication(begun, len(self.disk.journal), {epoch: self._past[epoch].visible()}))
        self.stories.append(story)

    def _commit(self, begun: int, epoch: int, moment: Moment) -> None:
        self._past = dict(list({**self._past, epoch: moment}.items())[-self.options.retain :])
        self._prepared = None
        self._publish(begun, self._visible(self._past))

    def _publish(self, begun: int, epochs: Epochs) -> None:
        self.story.publications.append(Publication(begun, len(self.disk.journal), epochs))

    def _retained(self, past: Mapping[int, Moment]) -> Epochs:
        return self._visible(dict(list(past.items())[-self.options.retain :]))

    @staticmethod
    def _visible(past: Mapping[int, Moment]) -> Epochs:
        return {epoch: moment.visible() for epoch, moment in past.items()}


@contextlib.contextmanager
def same_names(seed: str) -> Iterator[None]:
    """Makes identities repeat from run to run, so that a failing image can be found again."""
    ids = (uuid.uuid5(uuid.NAMESPACE_URL, f"{seed}/{n}") for n in range(1 << 20))
    with mock.patch("uuid.uuid4", side_effect=ids):
        yield
