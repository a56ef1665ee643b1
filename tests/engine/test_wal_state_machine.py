"""The engine with a write-ahead log against a model: any sequence of writes, epochs, rivals, crashes and power cuts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lsmstate import EpochError, FencedError
from tests.conftest import Figures
from tests.support.crash_check import unsynced_lost
from tests.support.crash_memo import decoded_once
from tests.support.crash_workload import SECOND, batch, rows_of
from tests.support.sizes import size
from tests.support.wal_story import Story, held_by, number, word

EXAMPLES, STEPS = size("wal_state_machine"), size("wal_state_machine_steps")

small = st.integers(1, 30)


class LoggedStateMachine(RuleBasedStateMachine):
    """`Story` is the model. A handle that was left alone tries to go on once another has taken its place."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story(memtable_bytes=400)

    @rule(n=small, count=st.integers(1, 3))
    def append_numbers(self, n: int, count: int) -> None:
        self.story.append(0, *(number(n + i) for i in range(count)))

    @rule(n=small)
    def append_words(self, n: int) -> None:
        self.story.append(1, word(n))

    @rule(side=st.integers(0, 1), start=small, width=small)
    def remove(self, side: int, start: int, width: int) -> None:
        self.story.remove(side, start * SECOND, (start + width) * SECOND)

    @rule(ts=small)
    def advance(self, ts: int) -> None:
        self.story.advance(ts * SECOND)

    @precondition(lambda self: self.story.prepared is None)
    @rule(step=st.sampled_from([1, 1, 5]))
    def prepare(self, step: int) -> None:
        self.story.prepare(max(self.story.past, default=0) + step)

    @precondition(lambda self: self.story.prepared is not None)
    @rule()
    def commit(self) -> None:
        self.story.commit()

    @precondition(lambda self: self.story.prepared is not None)
    @rule()
    def abort(self) -> None:
        self.story.abort()

    @precondition(lambda self: self.story.prepared is None)
    @rule()
    def epoch(self) -> None:
        self.story.epoch(max(self.story.past, default=0) + 1)

    @precondition(lambda self: self.story.past)
    @rule(pick=st.integers(0, 5))
    def restore(self, pick: int) -> None:
        self.story.restore(sorted(self.story.past)[pick % len(self.story.past)])

    @rule(
        durability=st.sampled_from(["wal", "wal", "epoch"]),
        how=st.sampled_from(["close", "kill", "power"]),
        first=st.sampled_from(["commit", "abort", "write"]),
    )
    def reopen(self, durability: str, how: str, first: str) -> None:
        """What was prepared is still there for the next handle: to commit, to abort, or to leave behind by writing."""
        story, before, logged = self.story, self.story.store, self.story.logs
        if how == "close":
            before.close()
        elif how == "power":
            story.disk = unsynced_lost(story.disk)
            story.calls.clear()
        story.open(durability)
        if how == "kill" and logged:
            with pytest.raises(FencedError):
                before.append(0, batch(0, [number(999)]))
        if story.prepared is None:
            return
        if first == "commit":
            story.commit()
        elif first == "abort":
            story.abort()
        else:
            story.prepared = None
            story.append(0, number(7))

    @invariant()
    def shows_what_the_model_says(self) -> None:
        assert rows_of(self.story.store) == self.story.now.visible()

    @rule()
    def look_after_a_power_cut(self) -> None:
        other = Story(unsynced_lost(self.story.disk))
        assert held_by(other.store) == self.story.held()
        assert other.store.verify() == []

    @precondition(lambda self: self.story.past)
    @rule()
    def repeat_a_commit_or_ask_for_the_past(self) -> None:
        last = max(self.story.past)
        if self.story.prepared is None:
            self.story.store.commit(last)
        with pytest.raises(EpochError):
            self.story.store.restore(last + 1)


def test_every_sequence_of_calls_with_a_log_agrees_with_the_model(figures: Figures) -> None:
    size = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )
    with decoded_once():
        run_state_machine_as_test(LoggedStateMachine, settings=size)
    figures.add("state machine with a log: {} sequences of up to {} steps", EXAMPLES, STEPS)
