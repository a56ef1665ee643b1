"""A keyed table equals a dict, through epochs, crashes, restores and folding in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lsmstate.checkpoint.tables import keyed_table
from lsmstate.checkpoint.tables.table_set import TableSet
from lsmstate.options import Options
from tests.support.crash_workload import InlinePool
from tests.support.keyed_rows import SCHEMA, got, held, keys, rows
from tests.support.simfs import SimFileSystem

SMALL = Options(memtable_bytes=2048, retain=5)
NAMES = [f"k{n}" for n in range(8)]
FEW = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1000)), max_size=6)


class TableMachine(RuleBasedStateMachine):
    """A keyed table beside a dict, through everything that can happen to it."""

    @initialize()
    def begin(self) -> None:
        self.fs = SimFileSystem()
        self.now: dict[str, int] = {}
        self.past: dict[int, dict[str, int]] = {0: {}}
        self.prepared: tuple[int, dict[str, int], dict[str, str]] | None = None
        self.told: dict[str, str] | None = None
        self.open(None, None)

    def open(self, safe: int | None, candidates: dict[str, str] | None) -> None:
        pool: Any = InlinePool()
        self.tables = TableSet("/op", self.fs, pool, safe_epoch=safe, candidates=candidates, options=SMALL)
        self.table = self.tables.keyed("t", SCHEMA, ["k"])

    @property
    def last(self) -> int:
        return max(self.past)

    @rule(told=FEW)
    def put(self, told: list[tuple[str, int]]) -> None:
        self.table.put(rows(*told))
        self.now.update(told)

    @rule(names=st.lists(st.sampled_from(NAMES), max_size=4))
    def delete(self, names: list[str]) -> None:
        self.table.delete(keys(*names))
        for name in names:
            self.now.pop(name, None)

    @rule()
    def fold(self) -> None:
        self.table.fold()

    @precondition(lambda self: self.prepared is None)
    @rule()
    def prepare(self) -> None:
        epoch = self.last + 1
        self.prepared = (epoch, dict(self.now), self.tables.prepare(epoch))

    @precondition(lambda self: self.prepared is not None)
    @rule()
    def commit(self) -> None:
        assert self.prepared is not None
        epoch, held_then, _ = self.prepared
        self.tables.commit(epoch)
        self.past[epoch], self.prepared = held_then, None

    @precondition(lambda self: self.prepared is not None)
    @rule()
    def abort(self) -> None:
        assert self.prepared is not None
        self.tables.abort(self.prepared[0])
        self.prepared = None

    @rule(decided=st.booleans())
    def reopen(self, decided: bool) -> None:
        """A crash; a prepared epoch was decided, or was not."""
        self.tables.close()
        if self.prepared is not None and decided:
            epoch, held_then, candidates = self.prepared
            self.past[epoch] = held_then
            self.open(epoch, candidates)
        else:
            self.open(self.last, None)
        self.prepared, self.now = None, dict(self.past[self.last])

    @rule(back=st.integers(1, 3))
    def restore(self, back: int) -> None:
        epoch = self.last - back
        if epoch < 1:
            return
        self.tables.close()
        self.open(epoch, None)
        self.past = {number: kept for number, kept in self.past.items() if number <= epoch}
        self.prepared, self.now = None, dict(self.past[epoch])

    @invariant()
    def holds_what_the_dict_holds(self) -> None:
        assert held(self.table) == self.now
        assert got(self.table, *NAMES) == self.now

    def teardown(self) -> None:
        self.tables.close()


@pytest.mark.parametrize("fold_rows", [3, 10**9])
def test_table_equals_a_dict_whatever_happens(fold_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_table, "_FOLD_ROWS", fold_rows)
    run_state_machine_as_test(
        TableMachine,
        settings=settings(max_examples=20, stateful_step_count=30, derandomize=True, database=None),
    )
