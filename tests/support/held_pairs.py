"""Two processes on one state, each stopped before each file operation: `python -m tests.support.held_pairs ...`.

Arguments: DIR FIRST SECOND STRIDE. The first process is held before operation i of its act; the second opens the state,
begins its own act and is held before its operation j; the first goes on to its end; then the second does. With a
stride, j goes through every so many operations only, beginning elsewhere for each i. After each pair, what is there
must be what the acts give one after the other, with all that was acknowledged in it; a new handle must be able to go
on; and `verify` finds nothing. Prints the figures as a line of JSON.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from lsmstate import Options, StateStore, View
from tests.support.crash_cases import few_runs
from tests.support.crash_workload import InlinePool
from tests.support.held_process import ACTS, KINDS, LIFE, RETAIN, UNHELD, HeldProcess, open_state, write
from tests.support.states import plain

EPOCHS = 6  # of the state that a pair begins with
REFUSALS = {"FencedError", "EpochError"}  # what a loser may be told
EXPIRED = {"restore", "compact"}  # these read older files, and may be told that those are retired
Epochs = dict[int, frozenset[str]]  # the retained ones, and who wrote the rows that they show
Answer = dict[str, Any]


def build(path: str) -> None:
    """A state with more epochs than it retains, and something to merge and to collect."""
    with open_state(path) as store:
        for epoch in range(1, EPOCHS + 1):
            write(store, "base", epoch)
            store.snapshot_epoch(epoch)


def build_candidates(path: str) -> str:
    """The same as tasks write it, none of it published; gives the newest candidate."""
    name = None
    for epoch in range(1, EPOCHS + 1):
        options = Options(retain=RETAIN, auto_compact=False)
        pool: Any = InlinePool()
        with StateStore.open_candidate(path, name, KINDS, options, pool=pool) as store:
            write(store, "base", epoch)
            name = store.prepare(epoch)
    assert name is not None
    return name


def rows_in(view: View | StateStore) -> frozenset[str]:
    """Who wrote the rows that are there. Each writes a row on each side: half of it must not be."""
    left, right = (sorted(row[2] for row in plain(view.scan(side))) for side in (0, 1))
    assert left == right, f"half of an epoch: {left} and {right}"
    assert len(set(left)) == len(left), f"rows twice: {left}"
    return frozenset(left)


def shown(rows: frozenset[str], epoch: int) -> frozenset[str]:
    """What the watermark of an epoch leaves of them."""
    return frozenset(row for row in rows if int(row.lstrip("abesinoth")) > epoch - 4)


def after(epochs: Epochs, act: str, who: str) -> Epochs:
    """What an act makes of a state."""
    last = max(epochs)
    if act == "restore":
        return dict(list(epochs.items())[:1])
    for epoch in range(last + 1, last + 1 + (1 if act in ACTS else LIFE)):
        rows = shown(epochs[epoch - 1] | {f"{who}{epoch}"}, epoch)
        epochs = dict(list({**epochs, epoch: rows}.items())[-RETAIN:])
    return epochs


def outcomes(base: Epochs, acts: list[tuple[str, str]], answers: list[Answer]) -> list[Epochs]:
    """The states that the acts may have left, one after the other: with every one that was acknowledged, and with one
    that was refused only if the other process has seen it before that."""
    possible = []
    for order in itertools.chain.from_iterable(itertools.permutations((0, 1), n) for n in (1, 2)):
        state, fits = base, True
        for number in order:
            fits &= answers[number]["start"] == list(state)
            state = after(state, *acts[number])
        missing = [n for n in (0, 1) if n not in order and answers[n]["error"] is None]
        refused_last = answers[order[-1]]["error"] is not None
        if fits and not missing and not refused_last:
            possible.append(state)
    return possible


class Pairs:
    """All pairs of the steps of two acts, on copies of one state."""

    def __init__(self, home: str, first: str, second: str, stride: int) -> None:
        self.path, self.template = f"{home}/state", f"{home}/template"
        self.acts = [(first, "a"), (second, "b")]
        self.stride = stride
        self.figures: Counter[str] = Counter()

    def run(self, one: HeldProcess, two: HeldProcess) -> None:
        build(self.template)
        with open_state(self.template) as store:
            self.base = {}
            for epoch in store.epochs():
                with store.at_epoch(epoch) as view:
                    self.base[epoch] = rows_in(view)
        for i in itertools.count():
            for j in self.holds(i):
                answers, held = self.pair(one, two, i, j)
                if not held[0]:
                    self.figures["steps"] = i
                    return
                self.check(answers, i, j)
                if not held[1]:
                    break

    def holds(self, i: int) -> Iterator[int]:
        """The steps of the second process; at none of them in the end, which is how the loop learns that."""
        if self.acts[1][0] in ACTS:
            yield from itertools.count(i % self.stride, self.stride)
        else:
            yield UNHELD

    def pair(self, one: HeldProcess, two: HeldProcess, i: int, j: int) -> tuple[list[Answer], list[bool]]:
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.template, self.path)
        first = one.start(i, act=self.acts[0][0], path=self.path)
        if first is not None:
            return [first], [False, False]
        second = two.start(j, act=self.acts[1][0], path=self.path)
        held = second is None
        return [one.go_on(), two.go_on() if second is None else second], [True, held]

    def check(self, answers: list[Answer], i: int, j: int) -> None:
        where = f"{self.acts[0][0]} at {i}, {self.acts[1][0]} at {j}: {answers}"
        errors = [answer["error"] for answer in answers]
        assert None in errors, f"nobody won: {where}"
        for (act, _), error in zip(self.acts, errors, strict=True):
            assert error in {None, *REFUSALS} or (error == "SnapshotExpired" and act in EXPIRED), where
        with open_state(self.path) as store:
            found: Epochs = {}
            for epoch in store.epochs():
                with store.at_epoch(epoch) as view:
                    found[epoch] = rows_in(view)
            allowed = outcomes(self.base, self.acts, answers)
            assert found in allowed, f"{found} is none of {allowed}: {where}"
            assert store.verify() == [], where
            write(store, "then", max(found) + 1)
            store.snapshot_epoch(max(found) + 1)
            assert store.stats().collection_error is None, where
            assert store.verify() == [], where
        self.figures["pairs"] += 1
        self.figures["fenced"] += sum(error is not None for error in errors)
        self.figures["both"] += errors == [None, None]


class Candidates:
    """All pairs of the steps of two attempts at one epoch: both are whole, neither harms the other."""

    def __init__(self, home: str, stride: int) -> None:
        self.path, self.template, self.stride = f"{home}/state", f"{home}/template", stride
        self.figures: Counter[str] = Counter()

    def run(self, one: HeldProcess, two: HeldProcess) -> None:
        parent = build_candidates(self.template)
        told = {"act": "candidate", "path": self.path, "parent": parent, "epoch": EPOCHS + 1}
        for i in itertools.count():
            for j in itertools.count(i % self.stride, self.stride):
                shutil.rmtree(self.path, ignore_errors=True)
                shutil.copytree(self.template, self.path)
                first = one.start(i, **told)
                if first is not None:
                    self.figures["steps"] = i
                    return
                second = two.start(j, **told)
                last = second is not None
                self.check(parent, [one.go_on(), two.go_on() if second is None else second], f"at {i} and {j}")
                if last:
                    break

    def check(self, parent: str, answers: list[Answer], where: str) -> None:
        names = [answer["candidate"] for answer in answers]
        assert len({*names, parent}) == 3
        options, pool = Options(retain=RETAIN), InlinePool()
        for who, name, answer in zip("ab", names, answers, strict=True):
            assert answer["collector"] is None, (where, answer)
            with StateStore.open_candidate(
                self.path,
                name,
                KINDS,
                options,
                read_only=True,
                pool=pool,  # type: ignore[arg-type]
            ) as store:
                newest = {row for row in rows_in(store) if row.endswith(str(EPOCHS + 1))}
                assert newest == {f"{who}{EPOCHS + 1}"}, (where, newest)
                assert len(rows_in(store)) == 4, where
                assert store.verify() == [], where
        self.figures["pairs"] += 1


def main(home: str, first: str, second: str, stride: int) -> None:
    with few_runs():
        pairs: Any = Candidates(home, stride) if first == "candidate" else Pairs(home, first, second, stride)
        with HeldProcess("a") as one, HeldProcess("b") as two:
            pairs.run(one, two)
    sys.stdout.write(json.dumps(pairs.figures) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
