"""The part of the state machine that reads and writes: each step is done to the store and to `Model`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from iopool import WorkerPool
from lsmstate import EpochError, Options, StateStore, StoreClosedError, View
from lsmstate.keys import TS_MAX, TS_MIN
from tests.support.draws import CODE_MAX, SHAPES, TIMES, draw_rows, hot_rows, make_sides
from tests.support.model import Model, in_bucket_order
from tests.support.simfs import SimFileSystem
from tests.support.states import PATH, batch, plain

VIEWS_MAX = 3

codes = st.lists(st.integers(0, CODE_MAX), max_size=8)
forms = st.sampled_from(["batch", "sliced", "chunked"])
number = st.integers(0, 11)  # taken modulo what there is
times = st.sampled_from([*TIMES, 8, 20, TS_MAX // 2])
bounds = st.sampled_from([None, 0, 10, -10, -100, 1, TS_MAX, TS_MIN, 10**30, -(10**30), -(2**62)])


@dataclass
class Handle:
    """An open store and what it must show; `committed` is what its head must be able to open."""

    store: StateStore
    now: Model
    committed: dict[int, Model]
    prepared: tuple[int, str, Model] | None = None
    untouched: bool = True  # nothing was written since it was opened or last published
    aborted: bool = False  # an epoch was prepared and aborted since then

    @property
    def last(self) -> int:
        return max(self.committed, default=0)


class ReadingAndWriting(RuleBasedStateMachine):
    """The rules for one handle within an epoch; `at` is the handle that writes."""

    pool: ClassVar[WorkerPool]

    @initialize(
        shape=st.integers(0, len(SHAPES) - 1),
        retentions=st.lists(st.sampled_from([None, 0, 1, 10]), min_size=2, max_size=3),
        memtable_bytes=st.sampled_from([1, 200, 1000, 1 << 20]),
        retain=st.integers(1, 3),
        batch_rows=st.sampled_from([1, 3, 1000]),
    )
    def create(
        self, shape: int, retentions: list[int | None], memtable_bytes: int, retain: int, batch_rows: int
    ) -> None:
        self.kinds = make_sides(shape, retentions)
        self.options = Options(memtable_bytes=memtable_bytes, retain=retain, batch_rows=batch_rows)
        self.fs = SimFileSystem()
        self.views: list[tuple[View, Model]] = []
        self.zombies: list[Handle] = []
        self.left: dict[str, tuple[int, Model]] = {}  # prepared for the next publication by handles that are gone
        self.missed: dict[str, int] = {}  # the epochs of candidates that can be committed no more
        self.branches = 0
        self.at = Handle(self.opened(), Model.empty(self.kinds), {})

    def opened(self, path: str = PATH) -> StateStore:
        return StateStore.open(path, self.kinds, self.options, fs=self.fs.spawn(), pool=self.pool)

    def side(self, pick: int) -> int:
        return pick % len(self.kinds)

    # ---- writing

    @rule(pick=number, codes=codes, form=forms)
    def append(self, pick: int, codes: list[int], form: str) -> None:
        side = self.side(pick)
        drawn = draw_rows(self.kinds[side], codes, form)
        self.at.store.append(side, drawn.given)
        self.at.now = self.at.now.appended(side, drawn.rows)
        self.at.untouched &= not drawn.rows

    @rule(pick=number, more=st.lists(st.integers(0, CODE_MAX), min_size=5, max_size=30))
    def append_many(self, pick: int, more: list[int]) -> None:
        self.append(pick, more[:5], "batch")
        self.append(pick + 1, more, "chunked")

    @rule(pick=number, code=st.integers(0, CODE_MAX), count=st.integers(9, 20))
    def append_hot_key(self, pick: int, code: int, count: int) -> None:
        """All of it, one row, and all again: pieces that lie in the same buckets and begin in different ones."""
        side = self.side(pick)
        rows = hot_rows(self.kinds[side], code, count)
        for part in (rows, rows[code % count :][:1], rows):
            self.at.store.append(side, batch(*part, schema=self.kinds[side].schema))
            self.at.now = self.at.now.appended(side, part)
        self.at.untouched = False

    @rule(pick=number, start=times, end=st.one_of(times, st.just(TS_MAX + 1)))
    def remove(self, pick: int, start: int, end: int) -> None:
        side = self.side(pick)
        if start >= end:
            with pytest.raises(ValueError, match="start < end"):
                self.at.store.remove(side, start, end)
            return
        self.at.store.remove(side, start, end)
        self.at.now = self.at.now.removed(side, start, end)
        self.at.untouched = False

    @rule(ts=times)
    def advance_watermark(self, ts: int) -> None:
        before = self.at.now
        self.at.store.advance_watermark(ts)
        self.at.now = before.advanced(ts)
        self.at.untouched &= self.at.now is before

    # ---- reading

    @rule(pick=number, other=number, codes=codes, form=forms, lower=bounds, upper=bounds)
    def probe(self, pick: int, other: int, codes: list[int], form: str, lower: int | None, upper: int | None) -> None:
        side, by = self.side(pick), self.side(other)
        if lower is not None and upper is not None and lower > upper:
            lower, upper = upper, lower
        drawn = draw_rows(self.kinds[by], codes, form)
        batches = list(self.at.store.probe(side, drawn.given, lower, upper, by=by))
        assert all(0 < part.num_rows <= self.options.batch_rows for part in batches)
        assert Counter(plain(batches)) == self.at.now.probe(side, by, drawn.rows, lower, upper)

    @rule(pick=number, start=st.none() | times, end=st.none() | times, ordered=st.booleans())
    def scan(self, pick: int, start: int | None, end: int | None, ordered: bool) -> None:
        side = self.side(pick)
        batches = list(self.at.store.scan(side, start, end, ordered=ordered))
        rows = list(plain(batches))
        assert all(0 < part.num_rows <= self.options.batch_rows for part in batches)
        assert Counter(rows) == self.at.now.scan(side, start, end)
        seen = [self.at.now.ts(side, row) for row in rows]
        assert in_bucket_order(self.kinds[side], seen, ordered=ordered)

    @rule()
    def take_snapshot(self) -> None:
        self.views.append((self.at.store.snapshot(), self.at.now))
        if len(self.views) > VIEWS_MAX:
            self.views.pop(0)[0].close()

    @precondition(lambda self: self.views)
    @rule(pick=number, close=st.booleans())
    def read_snapshot(self, pick: int, close: bool) -> None:
        pick %= len(self.views)
        view, then = self.views[pick]
        same(view, then)
        if close:
            del self.views[pick]
            view.close()
            with pytest.raises(StoreClosedError):
                view.scan(0)

    @rule()
    def read_every_epoch(self) -> None:
        assert self.at.store.epochs() == sorted(self.at.committed)
        for epoch, then in self.at.committed.items():
            with self.at.store.at_epoch(epoch) as view:
                same(view, then)
        with pytest.raises(EpochError):
            self.at.store.at_epoch(self.at.last + 1)

    @rule()
    def verify(self) -> None:
        assert self.at.store.verify() == []
        assert self.at.store.stats().collection_error is None


def same(view: View | StateStore, then: Model) -> None:
    """All sides show exactly the model's rows."""
    for side in range(len(then.kinds)):
        assert Counter(plain(view.scan(side))) == then.scan(side)
