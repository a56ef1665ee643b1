"""`lsmstate compact STATE`: merges runs now, beside a job or without any.

A merge leaves a note that the next epoch of any writer adopts; nothing is published here, and nobody is fenced. While
it works the command holds a pin, so that no job retires what is being merged.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn

from iopool import FileSystem, LocalFileSystem
from lsmstate.cli.progress import Line
from lsmstate.cli.state_report import state_identity
from lsmstate.cli.terminal import Cell, Commands, console, fields, heading, note_partition, table, write_json
from lsmstate.cli.wording import count_text, plainly, size_text
from lsmstate.engine import StateStore
from lsmstate.engine.verify import STUMBLES
from lsmstate.errors import EpochError, NotAStateError, SnapshotExpired
from lsmstate.join.home import home_of, is_home
from lsmstate.join.reading import EpochState, state_at
from lsmstate.manifest import names
from lsmstate.options import Options

_OPTIONS = Options(auto_compact=False)
_TRIES = 5
_SHOWN = 64  # partitions


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "compact",
        help="merge the runs of a state or a join, beside a job or without any",
        description="Merges runs now that would be merged in the background. Takes effect with the next epoch of the "
        "job, and may run beside it, as the same user. Exit code 0: all well; 1: damage was found; "
        "2: not a state, or it cannot be opened.",
    )
    parser.add_argument("state", metavar="STATE", help="the directory of a state, or of a join (its state=)")
    parser.add_argument(
        "--major", action="store_true", help="go on until all that can be one file is one, without removed rows"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compacts, and prints what came of it; 1 if anything is damaged."""
    fs = LocalFileSystem()
    path = fs.resolve(arguments.state)
    join = is_home(fs, path)
    home = path if join else home_of(fs, path)
    with Spinner() as spinner:
        work = _Work(fs, arguments.major, spinner)
        states = [work.state(path)] if home is None else work.partitions(home, None if join else path)
    if arguments.json:
        write_json({"schema": "lsmstate.compact/1", "path": path, "major": arguments.major, "states": states})
    else:
        out = console()
        heading(out, f"Join in {path}" if join else f"State {path}")
        _show(out, path, states, join)
        if home is not None and not join:
            note_partition(out, "compact", home)
    return 1 if any(state["error"] for state in states) else 0


class _Work:
    """Compacts states, one after the other."""

    def __init__(self, fs: FileSystem, major: bool, spinner: Spinner) -> None:
        self._fs, self._major, self._spinner = fs, major, spinner

    def state(self, path: str) -> dict[str, Any]:
        """Compacts a state of the engine at its last committed epoch."""
        state_identity(self._fs, path)
        tries = _TRIES
        while True:
            tries -= 1
            try:
                return self._compacted(path, StateStore.open(path, options=_OPTIONS, fs=self._fs))
            except SnapshotExpired:  # a job went on between the look at the state and the pin
                if not tries:
                    raise

    def partitions(self, home: str, only: str | None) -> list[dict[str, Any]]:
        """Compacts the partitions of a join, all unless told, each at the newest epoch that is complete."""
        try:
            found = state_at(self._fs, home, None)
        except EpochError:  # none is complete yet
            return []
        paths = [found.home.partition(number) for number in range(len(found.candidates))]
        if only is not None and only not in paths:
            raise NotAStateError(f"{only}: the join in {home} has {len(paths)} partitions, and this is none of them")
        done = []
        for number, path in enumerate(paths):
            if only in (None, path):
                told, found = self._partition(found, number, path)
                done.append(told)
        return done

    def _partition(self, found: EpochState, number: int, path: str) -> tuple[dict[str, Any], EpochState]:
        tries = _TRIES
        while True:
            tries -= 1
            try:
                store = StateStore.open_candidate(
                    path, found.candidates[number], found.sides, _OPTIONS, line=found.barrier.line, fs=self._fs
                )
                return self._compacted(path, store), found
            except SnapshotExpired:  # the query went on while other partitions were compacted
                if not tries:
                    raise
                found = state_at(self._fs, found.home.path, None)

    def _compacted(self, path: str, opened: StateStore) -> dict[str, Any]:
        error: str | None = None
        with opened as store, store.snapshot():  # its pin keeps what is merged, whatever a job retires
            before = store.stats()
            busy = self._is_locked(path)
            if not busy:
                try:
                    store.compact(major=self._major, progress=self._spinner.told)
                except FileNotFoundError as lost:
                    error = f"{lost.filename or path}: the file is missing"
                except STUMBLES as stumble:  # over a hostile file that is true to its checksums
                    error = f"the merge ends in {type(stumble).__name__}"
            after = store.stats()
        counted = after.compaction
        if error is None and counted.last_error is not None:
            error = plainly(counted.last_error, "")
        if not counted.merges and error is None:
            busy = busy or self._is_locked(path)  # another one may have been faster by a moment
        return {
            "path": path,
            "sides": [side.name for side in after.sides],
            "merges": counted.merges,
            "rows": counted.rows_merged,
            "bytes": counted.bytes_written,
            "runs_before": [side.runs for side in before.sides],
            "runs_after": [side.runs for side in after.sides],
            "busy": busy,
            "error": error,
        }

    def _is_locked(self, path: str) -> bool:
        """Whether another process compacts the state just now."""
        lock = self._fs.lock(f"{path}/{names.COMPACTION_LOCK}")
        if lock is None:
            return True
        lock.release()
        return False


def _show(out: Console, path: str, states: Sequence[dict[str, Any]], join: bool) -> None:
    merges, rows, size = (sum(state[name] for state in states) for name in ("merges", "rows", "bytes"))
    moved = [state for state in states if state["merges"] or state["runs_before"] != state["runs_after"]]
    busy = sum(state["busy"] for state in states)
    damage = [("DAMAGED", state["error"]) for state in states if state["error"]]
    pairs: list[tuple[str, str]] = []
    if merges:
        done = f"{count_text(merges, 'merge')}, {count_text(rows, 'row')}, {size_text(size)} written"
        pairs.append(("merged", done))
    elif moved:
        pairs.append(("merged", "nothing now: what was merged before waits for the job"))
    elif not busy and not damage:
        pairs.append(("OK", "nothing to do"))
    for name, runs in _runs_by_side(states) if moved else ():
        pairs.append(("runs", f"{name}: {runs}"))
    if busy:
        which = f" {count_text(busy, 'partition')}" if join else ""
        pairs.append(("busy", f"another process is compacting{which}: left to that one"))
    if moved:
        pairs.append(("applies", "with the next epoch of the job; until then nothing changes for anybody"))
    if damage:
        pairs += [*damage, ("do", f"what is damaged was left as it is; see lsmstate verify {shlex.quote(path)}")]
    fields(out, pairs)
    if join and moved:
        heading(out, "Partitions")
        columns = ("=partition", ">merges", ">rows", ">size", *(f">{name}\nruns" for name in states[0]["sides"]))
        table(out, columns, [_cells(state) for state in moved[:_SHOWN]])
        if len(moved) > _SHOWN:
            fields(out, [("", f"and {len(moved) - _SHOWN:,} more; --json lists all")])


def _runs_by_side(states: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (name, _change(*(sum(state[when][side] for state in states) for when in ("runs_before", "runs_after"))))
        for side, name in enumerate(states[0]["sides"])
    ]


def _cells(state: dict[str, Any]) -> list[Cell]:
    runs = [_change(before, after) for before, after in zip(state["runs_before"], state["runs_after"], strict=True)]
    name = state["path"].rpartition("/")[2]
    return [name, f"{state['merges']:,}", f"{state['rows']:,}", size_text(state["bytes"]), *runs]


def _change(before: int, after: int) -> str:
    return f"{before:,} -> {after:,}"


class Spinner(Line):
    """What is being merged, and how many values were written."""

    def __init__(self) -> None:
        super().__init__(
            SpinnerColumn("line"),
            TextColumn("merging: {task.description}", markup=False),
            begins="looking for work",
        )
        self.told: Callable[[str, int], None] | None = self._told if self.is_seen else None
        self._values = 0

    def _told(self, why: str, values: int) -> None:
        self._values += values
        self.update(description=f"{why}; {count_text(self._values, 'value')} written")
