"""`lsmstate demo [DIR]`: two streams joined on Spark while they arrive; then the result is checked."""

from __future__ import annotations

import argparse
import json
import os.path
import re
import shlex
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from iopool import FileSystem, LocalFileSystem
from lsmstate.cli.demo_screen import watch
from lsmstate.cli.terminal import Commands, console, heading
from lsmstate.cli.wording import count_text, safe
from lsmstate.errors import NotAStateError
from lsmstate.join.home import JOB
from lsmstate.manifest import names

if TYPE_CHECKING:
    from lsmstate.spark.demo import Look, Verdict

_DIRECTORY = "state/demo"
_SECONDS, _SECONDS_MAX = 20, 300
_RUN = re.compile(r"run-(\d{1,9})")
_INTRODUCTION = """\
  Spark reads impressions of ads, and clicks on them, from files that this demo
  keeps adding: 100,000 rows a second. lsmstate joins the two streams: which ads
  were clicked within 20 s of being shown? Rows that may still find a partner
  wait in the state, until the watermark says that none can come any more. At
  the end Spark joins the same files once more, as one batch, and the two
  results are compared.\
"""


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "demo",
        help="two streams joined on Spark, live in the terminal; the result is checked",
        description="Joins impressions with clicks on an embedded Spark while they arrive, in a new directory below "
        "DIR, and checks the result against Spark's own batch join. What is there already is not touched. Exit code "
        "1: the result was wrong.",
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", default=_DIRECTORY, help=f"default: {_DIRECTORY}")
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=_seconds,
        default=_SECONDS,
        help=f"how long rows keep coming; default: {_SECONDS}, at most {_SECONDS_MAX}",
    )
    parser.set_defaults(run=run)


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to {_SECONDS_MAX}, not {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Runs the demonstration; 1 if its result is wrong."""
    from lsmstate.spark.demo import DemoJob  # here, because pyspark would delay every other command too
    from lsmstate.spark.demo_session import check_java

    out, fs = console(), LocalFileSystem()
    where = new_run(fs, os.path.normpath(arguments.directory))
    check_java()
    introduce(out, where)
    make_dirs(fs, where)
    try:
        with DemoJob(fs, fs.resolve(where), arguments.seconds) as job:
            look = watch(out, job)
    except KeyboardInterrupt:
        out.print(f"\nInterrupted. What was written stays in {safe(where)}", soft_wrap=True)
        raise
    assert look.verdict is not None
    conclude(out, look.verdict)
    show_next(out, fs, where, look)
    return 0 if look.verdict.right else 1


def new_run(fs: FileSystem, directory: str) -> str:
    """A path below the directory that nothing has."""
    kind = fs.kind(directory)
    if kind not in (None, "dir"):
        raise NotAStateError(f"{directory}: is not a directory; name one for the demonstration: lsmstate demo DIR")
    listed = fs.list_dir(directory) if kind else []
    if names.STATE in listed or JOB in listed:
        raise NotAStateError(f"{directory}: is a state, which the demonstration leaves alone; name another directory")
    taken = [int(match[1]) for name in listed if (match := _RUN.fullmatch(name))]
    return f"{directory}/run-{max(taken, default=0) + 1}"


def make_dirs(fs: FileSystem, path: str) -> None:
    """Creates a directory, and those above it that are missing."""
    above = os.path.dirname(path)
    if above and fs.kind(above) is None:
        make_dirs(fs, above)
    fs.make_dir(path)


def introduce(out: Console, where: str) -> None:
    """Says what is going to happen, and where."""
    heading(out, "Two streams, joined while they arrive")
    out.print(_INTRODUCTION)
    out.print()
    for name, place in (
        ("input", f"{where}/impressions, {where}/clicks"),
        ("result", f"{where}/joined"),
        ("state", f"{where}/state/ad-join"),
    ):
        out.print(Text.assemble((f"  {name:<8}", "cyan"), safe(place)), soft_wrap=True)  # to be copied: never folded
    out.print()


def conclude(out: Console, verdict: Verdict) -> None:
    """Says whether the result is right."""
    out.print()
    if verdict.right:
        out.print(f"OK: the result equals the batch join: {count_text(verdict.rows, 'row')}", style="bold green")
        return
    told = f"{count_text(verdict.missing, 'row')} missing, {count_text(verdict.extra, 'row')} too many"
    out.print(f"WRONG: the result differs from the batch join: {told}. Please report this", style="bold red")


def show_next(out: Console, fs: FileSystem, where: str, look: Look) -> None:
    """Commands to look into what the job has left behind."""
    state, (lsmstate, python) = f"{where}/state/ad-join", _ourselves()
    tables = f"{state}/p-00000/{names.SST_DIR}"
    table = max(name for name in fs.list_dir(tables) if name.endswith(".sst"))
    past = max(1, look.epochs[-1].epoch - 5)
    code = f"import lsmstate; print(lsmstate.read_state({json.dumps(state)}, epoch={past}).to_pandas())"
    heading(out, "Look into it:")
    for command in (
        f"{lsmstate} inspect {shlex.quote(state)}",
        f"{lsmstate} verify {shlex.quote(state)}",
        f"{lsmstate} dump {shlex.quote(f'{tables}/{table}')}",
        f"{python} -c {shlex.quote(code)}",
        f"rm -r {shlex.quote(where)}",
    ):
        out.print(f"  {safe(command)}", soft_wrap=True)


def _ourselves() -> tuple[str, str]:
    """How lsmstate and its Python can be called from here."""
    python = shlex.quote(_short(sys.executable))
    is_script = os.path.basename(sys.argv[0]) == "lsmstate"
    return shlex.quote(_short(sys.argv[0])) if is_script else f"{python} -m lsmstate", python


def _short(path: str) -> str:
    """The path; below the working directory, relative to it."""
    here = os.path.relpath(path)
    return path if here.startswith("..") else here
