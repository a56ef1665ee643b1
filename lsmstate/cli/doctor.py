"""`lsmstate doctor STATE`: what is damaged, what can be read, what going back would lose; and, told to, goes back."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from iopool import LocalFileSystem
from lsmstate.cli.doctor_report import describe, recovered
from lsmstate.cli.terminal import Commands, console, fields, heading, table, write_json
from lsmstate.cli.verdict import show
from lsmstate.cli.wording import count_text, epochs_text, safe, size_text
from lsmstate.errors import EpochError, LsmStateError

_NAMED = 3  # files in a sentence


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "doctor",
        help="what is damaged, what can be read, what going back would lose; and the way back",
        description="Checks every byte, and tells which epochs are whole and what going back to each of them would "
        "lose. Changes nothing unless --recover is given. Exit code 0: all well, or recovered; 1: problems were found; "
        "2: not a state, or no way back.",
    )
    parser.add_argument("state", metavar="STATE", help="the directory of a state, or of a join (its state=)")
    parser.add_argument("--recover", metavar="N", type=int, help="go back to epoch N; stop the job first")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the report; 1 if anything is wrong and was not recovered from."""
    fs = LocalFileSystem()
    path = fs.resolve(arguments.state)
    report = describe(fs, path)
    if arguments.recover is not None:
        choice = _choice(report, arguments.recover)
        if not arguments.yes and not _agrees(report, choice):
            sys.stderr.write("lsmstate: nothing was changed\n")
            return 2
        report["recovered"] = {**choice, "line": recovered(fs, path, arguments.recover)}
    if arguments.json:
        write_json(report)
    else:
        _show(console(), report)
    return 1 if report["problems"] and report["recovered"] is None else 0


def _choice(report: dict[str, Any], epoch: int) -> dict[str, Any]:
    for choice in report["recoveries"]:
        if choice["epoch"] == epoch:
            found: dict[str, Any] = choice
            return found
    can = epochs_text(choice["epoch"] for choice in report["recoveries"])
    raise EpochError(f"{report['path']}: epoch {epoch} is not whole; those that can be gone back to: {can}")


def _agrees(report: dict[str, Any], choice: dict[str, Any]) -> bool:
    """Asks, if there is somebody to ask."""
    told = f"Take {safe(report['path'])} back to epoch {choice['epoch']}? This loses {_loss_text(choice)}."
    if not sys.stdin.isatty():
        raise LsmStateError(f"{told} Nobody is there to ask: repeat it with --yes")
    sys.stderr.write(f"{told} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _loss_text(choice: dict[str, Any]) -> str:
    rows = ", ".join(f"{count} rows of {name}" for name, count in choice["rows"].items() if count) or "no rows"
    told = f"{epochs_text(choice['epochs'])}: {rows} in {size_text(choice['bytes'])}"
    if choice["unreadable"]:
        told += f", and what is in {count_text(len(choice['unreadable']), 'file')} that cannot be read"
    if choice["log_bytes"]:
        told += f", and what came after in a log of {size_text(choice['log_bytes'])}"
    return told


def _show(out: Console, report: dict[str, Any]) -> None:
    show(out, report["verify"])
    if report["recovered"] is not None:
        heading(out, f"Back at epoch {report['recovered']['epoch']}, on line {report['recovered']['line']}")
        fields(out, [("lost", _loss_text(report["recovered"])), *(("next", line) for line in report["next"])])
        return
    if not report["recoveries"]:
        if report["problems"]:
            heading(out, "No epoch can be gone back to")
        return
    heading(out, f"What going back would lose: lsmstate doctor {shlex.quote(report['path'])} --recover EPOCH")
    names = list(report["recoveries"][0]["rows"])
    columns = (">epoch", "=loses", *(f">rows of\n{name}" for name in names), ">bytes", ">unreadable\nfiles", ">log")
    table(out, columns, [_cells(choice) for choice in report["recoveries"]])
    _name_files(out, report["recoveries"])


def _cells(choice: dict[str, Any]) -> list[str]:
    rows = [f"{count:,}" for count in choice["rows"].values()]
    lost = epochs_text(choice["epochs"]) if choice["epochs"] else "nothing"
    unreadable, log = f"{len(choice['unreadable']):,}", size_text(choice["log_bytes"])
    return [str(choice["epoch"]), lost, *rows, size_text(choice["bytes"]), unreadable, log]


def _name_files(out: Console, choices: Sequence[dict[str, Any]]) -> None:
    found = sorted({name for choice in choices for name in choice["unreadable"]})
    if found:
        more = f", and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
        fields(out, [("unreadable", ", ".join(found[:_NAMED]) + more)])
