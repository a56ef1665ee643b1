"""`lsmstate verify STATE`: every checksum and every invariant; what is wrong, whom it harms, and what to do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from iopool import FileSystem, LocalFileSystem
from lsmstate.cli.salvage import holds_remains, salvage
from lsmstate.cli.sstable_report import STUMBLES
from lsmstate.cli.state_report import state_identity
from lsmstate.cli.terminal import Commands, console, fields, heading, write_json
from lsmstate.cli.wording import count_text, epochs_text, plainly
from lsmstate.engine import StateStore
from lsmstate.engine.verify import Problem
from lsmstate.errors import CorruptionError, NotAStateError
from lsmstate.manifest import names

_SHOWN = 5  # problems of one file


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "verify",
        help="every checksum and invariant of a state; the exit code says",
        description="Checks every byte and every invariant of all retained epochs, and changes nothing. "
        "Exit code 0: all well; 1: problems were found; 2: not a state, or it cannot be opened.",
    )
    parser.add_argument("state", metavar="STATE", help="the directory of a state")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what is wrong; 1 if anything is."""
    fs = LocalFileSystem()
    report = check(fs, fs.resolve(arguments.state))
    if arguments.json:
        write_json(report)
    else:
        _show(console(), report)
    return 1 if report["problems"] else 0


def check(fs: FileSystem, path: str) -> dict[str, Any]:
    """The report of a verification. Raises NotAStateError, FormatVersionError or OSError where none is possible."""
    try:
        state_identity(fs, path)
        store = StateStore.open(path, read_only=True, fs=fs)
    except NotAStateError:
        if not holds_remains(fs, path):
            raise
        return _unopened(fs, path, Problem(f"{path}/{names.STATE}", "the file is missing", ()))
    except CorruptionError as error:
        return _unopened(fs, path, Problem(error.path, str(error), ()))
    except (FileNotFoundError, NotADirectoryError) as error:
        return _unopened(fs, path, Problem(str(error.filename or path), error.strerror or str(error), ()))
    with store, _Counting() as counting:
        epochs = store.epochs()
        problems = _verified(store, fs, path, counting)
    if problems:
        problems, epochs = _still_there(fs, path, problems, epochs)
    harmed = {epoch for problem in problems for epoch in problem.epochs}
    whole = [epoch for epoch in epochs if epoch not in harmed]
    return _report(path, True, epochs, whole, counting.files, problems, _advice(epochs, whole) if problems else [])


def _verified(store: StateStore, fs: FileSystem, path: str, counting: _Counting) -> list[Problem]:
    try:
        return store.verify(counting.told)
    except STUMBLES as error:  # a hostile file that is true to its checksums: look at each file on its own
        what = f"the checks end in {type(error).__name__}"
        return salvage(fs, path).problems or [Problem(path, what, ())]


def _still_there(
    fs: FileSystem, path: str, problems: list[Problem], epochs: list[int]
) -> tuple[list[Problem], list[int]]:
    """The problems of epochs that are still retained: a writer may have retired others while they were read."""
    with StateStore.open(path, read_only=True, fs=fs) as store:
        kept = [epoch for epoch in epochs if epoch in store.epochs()]
    left = []
    for problem in problems:
        harmed = tuple(epoch for epoch in problem.epochs if epoch in kept)
        if harmed or not problem.epochs:
            left.append(Problem(problem.path, problem.what, harmed))
    return left, kept


def _unopened(fs: FileSystem, path: str, reason: Problem) -> dict[str, Any]:
    """The report of a state that cannot be opened: the reason, and what the files still tell."""
    found = salvage(fs, path)
    others = [problem for problem in found.problems if problem.path != reason.path]
    problems = [reason, *others]
    if reason.path.endswith(f"/{names.STATE}"):
        advice = [
            "STATE is written once and never changes: copy it from any backup of this very state.",
            "Without it the SSTables can still be read one by one: `lsmstate dump FILE`.",
        ]
    elif found.newest is not None:
        newest, head = found.newest.version.epoch, names.head(found.newest.publication)
        advice = [
            "Best: copy the files named above from a backup; a file of the same name has the same content.",
            f"Or go back to epoch {newest}: move each file {names.MANIFEST_DIR}/head-* above {head} out of the "
            f"directory (and keep it). The state then opens at epoch {newest}; replay what came after it.",
        ]
    else:
        advice = ["No epoch is whole: copy the files named above from a backup, or build the state anew."]
    return _report(path, False, found.epochs, found.epochs, found.files, problems, advice)


def _advice(epochs: Sequence[int], whole: Sequence[int]) -> list[str]:
    advice = ["Files never change: a file of the same name from a backup or a branch can be copied into place."]
    if whole and whole[-1] == epochs[-1]:
        advice.append(
            f"The newest epoch ({whole[-1]}) is not harmed: jobs can go on. Do not restore, branch or read the "
            "harmed epochs; they go away as they are retired."
        )
    elif whole:
        advice.append(
            f"Or go back to epoch {whole[-1]}, the newest that is whole, and replay what came after it: "
            f"StateStore.open(path).restore({whole[-1]})."
        )
    else:
        advice.append("No retained epoch is whole: without good copies the state has to be built anew.")
    return advice


def _report(
    path: str,
    opened: bool,
    epochs: list[int],
    whole: list[int],
    files: int,
    problems: list[Problem],
    advice: list[str],
) -> dict[str, Any]:
    return {
        "schema": "lsmstate.verify/1",
        "path": path,
        "ok": not problems,
        "opened": opened,
        "epochs": epochs,
        "whole_epochs": whole,
        "files": files,
        "problems": [{"path": p.path, "what": plainly(p.what, p.path), "epochs": list(p.epochs)} for p in problems],
        "advice": advice,
    }


def _show(out: Console, report: dict[str, Any]) -> None:
    heading(out, f"State {report['path']}")
    if report["ok"]:
        told = f"{epochs_text(report['epochs'])} in {count_text(report['files'], 'file')}, every byte of them"
        if not report["epochs"]:
            told = "a new state: nothing was committed yet"
        fields(out, [("checked", told), ("OK", "every checksum and every invariant holds")])
        return
    by_path: dict[str, list[dict[str, Any]]] = {}
    for problem in report["problems"]:
        by_path.setdefault(problem["path"], []).append(problem)
    opened = "" if report["opened"] else ", and the state cannot be opened"
    found = count_text(len(report["problems"]), "problem")
    fields(out, [("DAMAGED", f"{found} in {count_text(len(by_path), 'place')}{opened}")])
    for path, problems in by_path.items():
        heading(out, path)
        pairs = [("wrong", problem["what"]) for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            pairs.append(("", f"and {len(problems) - _SHOWN:,} more; --json lists all"))
        harmed = {epoch for problem in problems for epoch in problem["epochs"]}
        fields(out, [*pairs, ("harms", epochs_text(harmed))] if harmed else pairs)
    heading(out, "What to do")
    fields(out, [("whole", epochs_text(report["whole_epochs"])), *(("do", line) for line in report["advice"])])


class _Counting:
    """Counts files as they are checked, with a bar on stderr where somebody can see it."""

    def __init__(self) -> None:
        self.files = 0
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("checking", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("files"))
            self._bar = Progress(*columns, console=console(stderr=True), transient=True)
            self._bar.add_task("files", total=None)

    def told(self, name: str, done: int, total: int) -> None:
        """What `StateStore.verify` calls before each file."""
        self.files = total
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def __enter__(self) -> _Counting:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
