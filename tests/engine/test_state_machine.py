"""The whole engine against a model: any sequence of calls, crashes, rivals and time travel.

Every step is done to the store and to `Model`. What can be read is compared with brute force; what cannot be done
must fail with the documented error and change nothing. Reading and writing are in `tests.support.machine`.
"""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from iopool import WorkerPool
from lsmstate import EpochError, FencedError, SnapshotExpired, StoreClosedError
from tests.conftest import Figures
from tests.support.draws import draw_rows
from tests.support.machine import Handle, ReadingAndWriting, codes, number, same
from tests.support.model import Model
from tests.support.sizes import size
from tests.support.states import plain

EXAMPLES, STEPS = size("state_machine"), size("state_machine_steps")


class StateMachine(ReadingAndWriting):
    # ---- epochs

    @rule(step=st.sampled_from([1, 1, 1, 2, 50]))
    def prepare(self, step: int) -> None:
        at, epoch = self.at, self.at.last + step
        if at.prepared is not None:
            with pytest.raises(EpochError, match="is prepared"):
                at.store.prepare(epoch)
            return
        at.prepared = (epoch, at.store.prepare(epoch), at.now)

    @precondition(lambda self: self.at.prepared)
    @rule(named=st.booleans())
    def commit(self, named: bool) -> None:
        assert self.at.prepared is not None
        epoch, name, then = self.at.prepared
        self.at.store.commit(epoch, candidate=name if named else None)
        self.published(epoch, then)
        self.at.store.commit(epoch, candidate=name if named else None)

    @precondition(lambda self: self.at.prepared)
    @rule()
    def abort(self) -> None:
        assert self.at.prepared is not None
        self.at.store.abort(self.at.prepared[0])
        self.at.prepared, self.at.aborted = None, True

    @precondition(lambda self: not self.at.prepared)
    @rule()
    def snapshot_epoch(self) -> None:
        epoch = self.at.last + 1
        self.at.store.snapshot_epoch(epoch)
        self.published(epoch, self.at.now)

    def published(self, epoch: int, then: Model) -> None:
        at = self.at
        kept = sorted(at.committed)[-(self.options.retain - 1) :] if self.options.retain > 1 else []
        at.committed = {**{e: at.committed[e] for e in kept}, epoch: then}
        at.prepared, at.untouched, at.aborted = None, at.now is then, False
        self.forget_candidates()

    @precondition(lambda self: self.at.committed)
    @rule(pick=number)
    def restore(self, pick: int) -> None:
        at = self.at
        epoch = sorted(at.committed)[pick % len(at.committed)]
        at.store.restore(epoch)
        at.committed = {e: m for e, m in at.committed.items() if e <= epoch}
        at.now, at.prepared, at.untouched, at.aborted = at.committed[epoch], None, True, False
        self.forget_candidates()

    def forget_candidates(self) -> None:
        self.missed |= {name: epoch for name, (epoch, _) in self.left.items()}
        self.left = {}

    @precondition(lambda self: self.at.committed and self.branches < 3)
    @rule(pick=number, codes=codes)
    def branch(self, pick: int, codes: list[int]) -> None:
        epoch = sorted(self.at.committed)[pick % len(self.at.committed)]
        self.branches += 1
        path = f"/branch{self.branches}"
        self.at.store.branch(epoch, path)
        with self.opened(path) as other:
            drawn = draw_rows(self.kinds[1], codes, "batch")
            assert other.epochs() == [epoch]
            same(other, self.at.committed[epoch])
            other.append(1, drawn.given)
            other.snapshot_epoch(epoch + 1)
            same(other, self.at.committed[epoch].appended(1, drawn.rows))
            assert other.verify() == []

    @rule(major=st.booleans())
    def compact(self, major: bool) -> None:
        self.at.store.compact(major=major)

    # ---- ends of handles

    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        if self.at.prepared is not None:
            epoch, name, then = self.at.prepared
            self.left[name] = (epoch, then)
        if crash:
            self.fs = self.fs.copy()
            self.views, self.zombies = [], []
        else:
            self.at.store.close()
            with pytest.raises(StoreClosedError):
                self.at.store.scan(0)
        now = self.at.committed[self.at.last] if self.at.committed else Model.empty(self.kinds)
        self.at = Handle(self.opened(), now, self.at.committed)

    @rule(crash=st.booleans())
    def die_prepared(self, crash: bool) -> None:
        if self.at.prepared is None:
            self.prepare(1)
        self.reopen(crash)

    @precondition(lambda self: self.left and not self.at.prepared)
    @rule(pick=number, named=st.booleans())
    def commit_what_a_crash_left(self, pick: int, named: bool) -> None:
        at, found = self.at, self.left
        name = sorted(found)[pick % len(found)]
        epoch, then = found[name]
        alone = [e for e, _ in found.values()].count(epoch) == 1
        if not at.untouched or not (named or alone):
            with pytest.raises(EpochError):
                at.store.commit(epoch, candidate=name if named else None)
            return
        try:
            at.store.commit(epoch, candidate=name if named else None)
        except EpochError:
            assert at.aborted, "nothing stood against it"
            return  # a handle that has aborted may ask to be reopened first
        at.now = then
        del found[name]
        self.published(epoch, then)

    @precondition(lambda self: self.left and not self.at.prepared)
    @rule(pick=number)
    def abort_what_a_crash_left(self, pick: int) -> None:
        epoch = sorted(epoch for epoch, _ in self.left.values())[pick % len(self.left)]
        self.at.store.abort(epoch)
        self.left = {name: told for name, told in self.left.items() if told[0] != epoch}

    @precondition(lambda self: self.missed and not self.at.prepared)
    @rule(pick=number)
    def commit_what_was_overtaken(self, pick: int) -> None:
        name = sorted(self.missed)[pick % len(self.missed)]
        with pytest.raises(EpochError):
            self.at.store.commit(self.missed[name], candidate=name)

    @precondition(lambda self: len(self.zombies) < 2)
    @rule(codes=codes)
    def be_overtaken(self, codes: list[int]) -> None:
        self.zombies.append(self.at)
        now = self.at.committed[self.at.last] if self.at.committed else Model.empty(self.kinds)
        self.at = Handle(self.opened(), now, self.at.committed)
        self.append(0, codes, "batch")
        self.snapshot_epoch()

    @precondition(lambda self: self.zombies)
    @rule(pick=number)
    def zombie_commits(self, pick: int) -> None:
        zombie = self.zombies.pop(pick % len(self.zombies))
        if zombie.prepared is None:
            with pytest.raises(FencedError):
                zombie.store.snapshot_epoch(zombie.last + 1)
        else:
            with pytest.raises(FencedError):
                zombie.store.commit(zombie.prepared[0])
        with pytest.raises(FencedError):
            zombie.store.advance_watermark(0)
        with contextlib.suppress(SnapshotExpired):
            same(zombie.store, zombie.now)
        zombie.store.close()
        same(self.at.store, self.at.now)

    @invariant()
    def shows_what_the_model_says(self) -> None:
        if hasattr(self, "at"):
            assert Counter(plain(self.at.store.scan(0))) == self.at.now.scan(0)

    def teardown(self) -> None:
        if hasattr(self, "at"):
            same(self.at.store, self.at.now)
            for view, then in self.views:
                same(view, then)
            self.read_every_epoch()
            self.verify()
            for handle in (self.at, *self.zombies):
                handle.store.close()


def test_every_sequence_of_calls_agrees_with_the_model(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    size = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )
    StateMachine.pool = WorkerPool()
    try:
        monkeypatch.setattr("compaction.picker.MIXED_MAX", 2)  # so that a few steps give it something to do
        run_state_machine_as_test(StateMachine, settings=size)
        figures.add("state machine: {} sequences of up to {} steps", EXAMPLES, STEPS)
    finally:
        assert StateMachine.pool.close(30.0)
