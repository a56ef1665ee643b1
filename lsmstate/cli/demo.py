"""`lsmstate demo [DIR]`: a streaming join on the engine, epoch by epoch, then a look back; its result is checked."""

from __future__ import annotations

import argparse
import contextlib
import os.path
import re
import shlex
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from iopool import FileSystem, LocalFileSystem
from lsmstate.cli.demo_join import Join, Step, counted_rows, live_rows
from lsmstate.cli.demo_rows import CLICKS, EPOCH_ROWS, EPOCH_US, EPOCHS, IMPRESSIONS, LATENESS_US, WITHIN_US
from lsmstate.cli.terminal import Commands, console, fields, heading
from lsmstate.cli.wording import epochs_text, safe, size_text, span_text, time_text
from lsmstate.engine import StateStore
from lsmstate.errors import NotAStateError
from lsmstate.manifest import names

_DIRECTORY = "state/demo"
_LINE = "{:>7}  {:>9}  {:>8}  {:>9}  {:>5}  {:>9}  {}"
_HEADS = ("epoch", "rows/s", "matched", "in state", "files", "size", "watermark")
_SECOND_US = 1_000_000
_PAST = EPOCHS // 2
_RUN = re.compile(r"run-(\d{1,9})")


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "demo",
        help="a streaming join on the engine: watermark, epochs, time travel, a branch; the result is checked",
        description="Joins ads with clicks, epoch by epoch, in a new directory below DIR, and checks the result "
        "against a join by pyarrow. What is there already is not touched. Exit code 1: the result was wrong.",
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", default=_DIRECTORY, help=f"default: {_DIRECTORY}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the demonstration; 1 if its result is wrong."""
    out = console()
    where = new_run(LocalFileSystem(), os.path.normpath(arguments.directory))
    heading(out, f"A streaming join: which ads were clicked within {span_text(WITHIN_US)}?")
    fields(
        out,
        [
            ("state", f"{where}/join"),
            (
                "input",
                f"{EPOCHS} epochs of {EPOCH_ROWS:,} rows, each {span_text(EPOCH_US)} of event time, out of order",
            ),
            ("watermark", f"newest event time - {span_text(LATENESS_US)}"),
            ("kept", f"ads {span_text(WITHIN_US)} behind the watermark, clicks {span_text(LATENESS_US)}"),
        ],
    )
    with StateStore.open(f"{where}/join", sides=[IMPRESSIONS, CLICKS]) as store:
        join = Join(store)
        _stream(out, join)
        well = _check(out, join)
        well &= _travel(out, join)
        well &= _branch(out, join, f"{where}/branch")
        _show_next(out, join, where)
    return 0 if well else 1


def new_run(fs: FileSystem, directory: str) -> str:
    """A path below the directory that nothing has."""
    kind = fs.kind(directory)
    if kind not in (None, "dir"):
        raise NotAStateError(f"{directory}: is not a directory; name one for the demonstration: lsmstate demo DIR")
    listed = fs.list_dir(directory) if kind else []
    if names.STATE in listed:
        raise NotAStateError(f"{directory}: is a state, which the demonstration leaves alone; name another directory")
    taken = [int(match[1]) for name in listed if (match := _RUN.fullmatch(name))]
    return f"{directory}/run-{max(taken, default=0) + 1}"


def _stream(out: Console, join: Join) -> None:
    heading(out, _LINE.format(*_HEADS))
    with _progress(out) as bar:
        for epoch in range(1, EPOCHS + 1):
            step = join.step(epoch)
            out.print(_line(step))
            if bar is not None:
                bar.advance(bar.task_ids[0])
    total, seconds = sum(step.rows for step in join.steps), sum(step.seconds for step in join.steps)
    told = f"{total:,} rows in {seconds:.1f} s: {total / seconds:,.0f} rows/s, every epoch durable"
    retired = len(join.steps) - join.steps[-1].files
    out.print()
    fields(out, [("speed", told), ("retired", f"{retired} files: the watermark has passed all of their rows")])


@contextlib.contextmanager
def _progress(out: Console) -> Iterator[Progress | None]:
    """A bar below the lines, on a terminal."""
    if not out.is_terminal:
        yield None
        return
    with Progress(TextColumn("joining"), BarColumn(), MofNCompleteColumn(), console=out, transient=True) as bar:
        bar.add_task("epochs", total=EPOCHS)
        yield bar


def _line(step: Step) -> str:
    return _LINE.format(
        step.epoch,
        f"{step.rows / step.seconds:,.0f}",
        f"{step.matched:,}",
        f"{step.state_rows:,}",
        step.files,
        size_text(step.file_bytes),
        time_text(step.watermark_us // _SECOND_US * _SECOND_US),
    )


def _verdict(well: bool) -> str:
    return "OK" if well else "WRONG"


def _check(out: Console, join: Join) -> bool:
    expected, found = join.expected_pairs(), join.found_pairs()
    well = len(expected) == len(found) and bool((expected == found).all())
    heading(out, "Is it right?")
    pairs = [
        ("lsmstate", f"{len(found):,} pairs of ad and click, found epoch by epoch"),
        ("pyarrow", f"{len(expected):,} pairs, by one Table.join of all {join.rows:,} rows"),
        (_verdict(well), "the same pairs, one by one" if well else "the pairs differ: please report this"),
    ]
    fields(out, pairs)
    return well


def _travel(out: Console, join: Join) -> bool:
    store = join.store
    heading(out, f"Time travel: {epochs_text(store.epochs())} can be opened")
    well, lines = True, []
    for epoch in (_PAST, EPOCHS):
        with store.at_epoch(epoch) as view:
            rows = [live_rows(view, side) for side in (0, 1)]
            same = rows == counted_rows(join, epoch)
            told = f"{rows[0]:,} ads and {rows[1]:,} clicks live, watermark {time_text(view.watermark)}"
        lines.append((f"epoch {epoch}", f"{told}: {_verdict(same)}"))
        well &= same
    fields(out, lines)
    return well


def _branch(out: Console, join: Join, path: str) -> bool:
    """A branch goes its own way, and its origin does not notice."""
    join.store.branch(_PAST, path)
    heading(out, f"A branch of epoch {_PAST}, without copying: {path}")
    with StateStore.open(path) as branch, branch.snapshot() as before:
        branch.remove(0, *before_half(before.watermark))
        branch.snapshot_epoch(_PAST + 1)
        with branch.snapshot() as after, join.store.at_epoch(_PAST) as origin:
            was, now, there = live_rows(before, 0), live_rows(after, 0), live_rows(origin, 0)
    well = now < was == there
    told = f"{was:,} ads; {now:,} after removing those before {time_text(before_half(before.watermark)[1])}"
    fields(out, [("branch", told), ("origin", f"{there:,} ads at epoch {_PAST}, untouched: {_verdict(well)}")])
    return well


def before_half(watermark_us: int | None) -> tuple[int, int]:
    """A range of times that ends in the middle of what is kept."""
    assert watermark_us is not None
    return watermark_us - WITHIN_US, watermark_us - WITHIN_US // 2


def _show_next(out: Console, join: Join, where: str) -> None:
    state, file = f"{where}/join", join.newest_file()
    commands = [
        f"lsmstate inspect {shlex.quote(state)}",
        f"lsmstate verify {shlex.quote(state)}",
        f"lsmstate dump {shlex.quote(f'{state}/{names.SST_DIR}/{file}')} --key {join.some_key()}",
        f"lsmstate inspect {shlex.quote(f'{where}/branch')}",
        f"rm -r {shlex.quote(where)}",
    ]
    heading(out, "Look into it:")
    for command in commands:
        out.print(f"  {safe(command)}", soft_wrap=True)
