"""Flipped bytes of a sound state: whoever reads them gives the correct answer or raises a documented error.

Owns what is asked for each byte, and what counts as silent. Readers are asked one by one, each about the newest epoch
or about a view of every retained one, so that none hides behind the error of another. The tools are asked too: verify
has to find every damage, inspect and dump may leave out what they tell to be damaged, and nothing else. Only a view
that does not hold the changed file is not asked: all that it reads is the very objects that gave the correct answer.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from iopool import FileSystem
from lsmstate import CorruptionError, FormatVersionError, NotAStateError, StateStore
from lsmstate.cli.sstable_report import describe as describe_file
from lsmstate.cli.sstable_rows import pick_rows
from lsmstate.cli.state_report import describe as describe_state
from lsmstate.engine import View
from lsmstate.sstable.cache import FileCache
from lsmstate.sstable.reader import SSTable
from tests.support.crash_memo import decoded_once
from tests.support.damaged import Sound, checked_once
from tests.support.simfs import SimFileSystem

DOCUMENTED = (CorruptionError, FormatVersionError, NotAStateError)
REFUSED = "refused"
SLICES = 8
_STATE = "/state"
_OF_EPOCHS = {"epochs", "files", "candidates", "unreached"}  # of what inspect shows: what a damaged epoch may change


class Figures(Protocol):
    """Where figures are added."""

    def add(self, name: str, *numbers: int) -> None: ...


class Open(Protocol):
    """Opens the state to read."""

    def __call__(self, fs: FileSystem, *, read_only: bool, cache: FileCache | None) -> StateStore: ...


@dataclass(frozen=True)
class Readers:
    """Who reads, by name: the state as it is, and each retained epoch. Answers are compared."""

    of_store: Mapping[str, Callable[[StateStore], Any]]
    of_view: Mapping[str, Callable[[View], Any]]


class Flips:
    """A sound state, and what everybody reads of it."""

    def __init__(self, fs: SimFileSystem, opened: Open, readers: Readers) -> None:
        self.whole = Sound(fs)
        self._open, self._readers = opened, readers
        self._answers = dict(self._asked(fs, None, None))
        assert REFUSED not in self._answers.values()
        self._report = describe_state(fs, _STATE)
        self._rows = {path: _shown(fs, path)[1] for path in self.whole.tree if path.endswith(".sst")}

    def places(self, step: int) -> list[tuple[str, int]]:
        """Every `step`-th byte of all distinct files: a head is a second name of a manifest."""
        tree = self.whole.tree
        files = sorted(path for path, data in tree.items() if data and "/head-" not in path)
        return [(path, at) for path in files for at in range(0, len(tree[path] or b""), step)]

    def check_part(self, part: int, step: int, tools_every: int, figures: Figures, under: str) -> None:
        """Flips a slice of every `step`-th byte, and counts."""
        with decoded_once(), checked_once():
            for number, (path, at) in enumerate(self.places(step)[part::SLICES]):
                tools = number % tools_every == 0
                figures.add(f"flipped bytes under {under}, {self.check(path, at, tools=tools)}", 1)
                figures.add(f"flipped bytes under {under}, also asked of verify, dump and inspect", int(tools))
        figures.add(f"flipped bytes under {under}, silently different", 0)

    def check(self, path: str, at: int, *, tools: bool) -> str:
        """Flips a byte; 'right' or 'refused' by the first who does. Fails where an answer is wrong."""
        data = self.whole.tree[path] or b""
        fs = self.whole.changed(path, data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        outcome = "right"
        for name, answer in self._asked(fs, self.whole.files(fs), path):
            if isinstance(answer, str) and answer == REFUSED:
                outcome = REFUSED
            else:
                assert answer == self._answers[name], f"{name}: silently different"
        if tools:
            self._check_verify(fs, self.whole.files(fs))
            self._check_inspect(fs)
            if path in self._rows:
                self._check_dump(fs, path)
        return outcome

    def _asked(self, fs: FileSystem, cache: FileCache | None, changed: str | None) -> Iterator[tuple[str, Any]]:
        """What each reader answers."""
        table = os.path.basename(changed) if changed and changed.endswith(".sst") else None
        try:
            store = self._open(fs, read_only=True, cache=cache)
        except DOCUMENTED:
            yield "opening", REFUSED
            return
        with store:
            epochs = store.epochs()
            yield "epochs", epochs
            for name, read in self._readers.of_store.items():
                yield name, _answer(read, store)
            for epoch in epochs:
                try:
                    view = store.at_epoch(epoch)
                except DOCUMENTED:
                    yield f"epoch {epoch}", REFUSED
                    continue
                with view:
                    looks = self._readers.of_view if table is None or table in view.files else {}
                    for name, look in looks.items():
                        yield f"{name} at epoch {epoch}", _answer(look, view)

    def _check_verify(self, fs: SimFileSystem, cache: FileCache) -> None:
        """It finds the damage."""
        with suppress(*DOCUMENTED), self._open(fs, read_only=True, cache=cache) as store:
            assert store.verify(), "verify found nothing"

    def _check_inspect(self, fs: SimFileSystem) -> None:
        """It shows what is there; but for what it tells to be damaged."""
        with suppress(*DOCUMENTED):
            report = describe_state(fs, _STATE)
            assert json.dumps(report, allow_nan=False)
            if report != self._report:
                assert any(epoch["error"] for epoch in report["epochs"]), "inspect is silently different"
                assert [e["epoch"] for e in report["epochs"]] == [e["epoch"] for e in self._report["epochs"]]
                for name in self._report.keys() - _OF_EPOCHS:
                    assert report[name] == self._report[name], f"inspect, {name}: silently different"

    def _check_dump(self, fs: SimFileSystem, path: str) -> None:
        """It tells of the damage, and every row that it still shows is right."""
        with suppress(*DOCUMENTED):
            problems, shown, whole = _shown(fs, path)
            assert problems, "dump found nothing"
            assert shown == self._rows[path] if whole else shown <= self._rows[path], "dump is silently different"


def _answer(read: Callable[[Any], Any], of: StateStore | View) -> Any:
    try:
        return read(of)
    except DOCUMENTED:
        return REFUSED


def _shown(fs: SimFileSystem, path: str) -> tuple[list[str], set[str], bool]:
    """What `lsmstate dump` shows of a file: its problems, its rows, and whether these are all of them."""
    table = SSTable(fs, path)
    report, rows = describe_file(table), pick_rows(table, 1000, [])
    assert json.dumps(report, allow_nan=False)
    return report["checks"]["problems"], {json.dumps(r, allow_nan=False) for r in rows["shown"]}, not rows["unreadable"]
