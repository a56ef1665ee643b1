"""Reads the arguments, runs one command, and turns errors into a line and an exit code.

A command is a module with `add(commands)`, which describes its arguments, and `run(arguments)`, which gives the exit
code. Nothing here knows what a command does.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import lsmstate
from lsmstate.cli import checkpoints, compact, demo, doctor, dump, inspect, jobs, restore, sql, verify, why
from lsmstate.cli.streams import standing_in
from lsmstate.cli.wording import safe
from lsmstate.errors import LsmStateError
from lsmstate.native import kernel

_ALL_WELL, _CANNOT, _INTERRUPTED, _BROKEN_PIPE = 0, 2, 130, 141
_EPILOG = """\
exit codes:
  0    all well
  1    problems were found: damage in a file or a state (compact, doctor, dump, verify), a result that is wrong (demo),
       a streaming table that failed (sql)
  2    wrong usage, not a state or not an SSTable, or it cannot be opened; one line on stderr says why
  130  interrupted
  141  the reader of the output went away (as in `lsmstate inspect STATE | head`)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; gives its exit code."""
    with standing_in():
        return _ended(argv)


def _ended(argv: Sequence[str] | None) -> int:
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # so that nothing is flushed into the broken pipe at exit
            sys.stdout.close()
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return _CANNOT
    except (LsmStateError, argparse.ArgumentError) as error:
        _complain(str(error))
        return _CANNOT
    return code


def _run(argv: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a letter shows its number instead
            stream.reconfigure(errors="backslashreplace")
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as leaving:  # after --help, --version or a usage message
        return leaving.code if isinstance(leaving.code, int) else _ALL_WELL
    return int(arguments.run(arguments))


class _Parser(argparse.ArgumentParser):
    """Its complaints repeat arguments: whatever is in them must not speak to the terminal."""

    def error(self, message: str) -> NoReturn:
        super().error(safe(message))


def build_parser() -> argparse.ArgumentParser:
    """The arguments of all commands."""
    parser = _Parser(
        prog="lsmstate",
        description="Look into the state of streaming joins, check it, compact it, take it back, and see it at work.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (checkpoints, compact, demo, doctor, dump, inspect, jobs, restore, sql, verify, why):
        command.add(commands)
    return parser


def _version() -> str:
    loops = "numpy loops: install a C compiler, then lsmstate again" if kernel is None else "compiled loops"
    return f"lsmstate {lsmstate.__version__} ({loops})"


def _complain(message: str) -> None:
    sys.stderr.write(f"lsmstate: {safe(message)}\n")
