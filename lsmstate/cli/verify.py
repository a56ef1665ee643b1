"""`lsmstate verify STATE`: every checksum and every invariant; what is wrong, whom it harms, and what to do."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

from iopool import FileSystem, LocalFileSystem
from lsmstate.cli import verify_join
from lsmstate.cli.salvage import holds_remains, salvage
from lsmstate.cli.state_report import state_identity
from lsmstate.cli.terminal import Commands, console, note_partition, write_json
from lsmstate.cli.verdict import Counting, report_of, show
from lsmstate.engine import StateStore
from lsmstate.engine.verify import STUMBLES, Problem
from lsmstate.errors import CorruptionError, NotAStateError
from lsmstate.join.home import home_of, is_home
from lsmstate.manifest import names


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "verify",
        help="every checksum and invariant of a state; the exit code says",
        description="Checks every byte and every invariant of all retained epochs, and changes nothing. "
        "Exit code 0: all well; 1: problems were found; 2: not a state, or it cannot be opened.",
    )
    parser.add_argument("state", metavar="STATE", help="the directory of a state, or of a join (its state=)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what is wrong; 1 if anything is."""
    fs = LocalFileSystem()
    path = fs.resolve(arguments.state)
    report = verify_join.check(fs, path) if is_home(fs, path) else check(fs, path)
    if arguments.json:
        write_json(report)
    else:
        out = console()
        show(out, report)
        home = home_of(fs, path)
        if home is not None:
            note_partition(out, "verify", home)
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
    with store, Counting() as counting:
        epochs = store.epochs()
        problems = _verified(store, fs, path, counting)
    if problems:
        problems, epochs = _still_there(fs, path, problems, epochs)
    harmed = {epoch for problem in problems for epoch in problem.epochs}
    whole = [epoch for epoch in epochs if epoch not in harmed]
    advice = _advice(path, epochs, whole, problems) if problems else []
    return report_of(path, True, epochs, whole, counting.files, problems, advice)


def _verified(store: StateStore, fs: FileSystem, path: str, counting: Counting) -> list[Problem]:
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
    elif reason.path.endswith(f"/{names.MANIFEST_DIR}") and found.newest is None:
        advice = [
            "Copy the manifests from the newest backup of this very state: nothing else tells which rows count.",
            "The SSTables can still be read one by one: `lsmstate dump FILE`.",
        ]
    elif found.newest is not None:
        newest = found.newest.version.epoch
        advice = [
            "Best: copy the files named above from a backup; a file of the same name has the same content.",
            f"Or go back to epoch {newest}, and replay what came after it: {_doctor(path, newest)}, which says before "
            "what that loses.",
        ]
    else:
        advice = ["No epoch is whole: copy the files named above from a backup, or build the state anew."]
    return report_of(path, False, found.epochs, found.epochs, found.files, problems, advice)


def _doctor(path: str, epoch: int) -> str:
    return f"lsmstate doctor {shlex.quote(path)} --recover {epoch}"


def _advice(path: str, epochs: Sequence[int], whole: Sequence[int], problems: Sequence[Problem]) -> list[str]:
    advice = ["Files never change: a file of the same name from a backup or a branch can be copied into place."]
    in_log = any(problem.path.startswith(f"{path}/{names.LOG_DIR}/") for problem in problems)
    if whole and whole[-1] == epochs[-1] and in_log:
        advice.append(
            f"Or go back to epoch {whole[-1]}, which is not harmed, leave the log behind, and replay what came after: "
            f"{_doctor(path, whole[-1])}."
        )
    elif whole and whole[-1] == epochs[-1]:
        advice.append(
            f"The newest epoch ({whole[-1]}) is not harmed: jobs can go on. Do not restore, branch or read the "
            "harmed epochs; they go away as they are retired."
        )
    elif whole:
        advice.append(
            f"Or go back to epoch {whole[-1]}, the newest that is whole, and replay what came after it: "
            f"{_doctor(path, whole[-1])}."
        )
    else:
        advice.append("No retained epoch is whole: without good copies the state has to be built anew.")
    return advice
