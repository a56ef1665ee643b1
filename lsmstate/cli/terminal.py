"""What commands print with: consoles and tables that take every string as it is.

Markup and emoji codes are off, so that a value such as `[red]` shows as itself; values and names still have to go
through `wording.safe`, which is done here for all cells and fields. Nothing is cut off: a cell that is too wide
is folded.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from rich import box
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from lsmstate.cli.wording import safe

_WIDTH_WITHOUT_TERMINAL = 120
_WIDTH_MAX = 1000
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Cell: TypeAlias = str | tuple[str, ...]  # several strings are lines of one cell


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """A console for the output, or for what is not part of it."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDTH_WITHOUT_TERMINAL
    return _Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def write_json(report: dict[str, Any]) -> None:
    """A report as JSON, in ASCII: all else is escaped."""
    sys.stdout.write(json.dumps(report, indent=2, allow_nan=False) + "\n")


def heading(out: Console, text: str) -> None:
    """The title of a part."""
    out.print()
    out.print(Text(safe(text), style="bold"), soft_wrap=True)


def fields(out: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(f"  {safe(name)}"), Text(safe(value)))
    _print(out, grid)


def note_partition(out: Console, command: str, home: str) -> None:
    """Says that what was shown is a part of something, and how to see the whole."""
    out.print()
    told = "this is one partition of a join, which knows what counts in it; leave it to the join, and see"
    fields(out, [("NOTE", f"{told} lsmstate {command} {shlex.quote(home)}")])


def table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A table. A column whose name begins with `>` stands to the right, one with `=` keeps its lines whole."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    cells = [[_text(cell) for cell in row] for row in rows]
    for number, column in enumerate(columns):
        right, whole = column.startswith(">"), column.startswith((">", "="))
        title = _text(tuple(column.lstrip(">=").split("\n")))
        least = max(_width(text) for text in (title, *(row[number] for row in cells))) if whole else None
        justify: JustifyMethod = "right" if right else "left"
        shown.add_column(title, justify=justify, overflow="fold", no_wrap=whole, min_width=least)
    for row in cells:
        shown.add_row(*row)
    needed = Measurement.get(out, out.options.update_width(_WIDTH_MAX), shown).minimum
    if needed > out.width:  # the terminal will wrap its lines; but half a number would be a wrong number
        shown.width = needed
    _print(out, shown)


def _print(out: Console, shown: Table) -> None:
    """Prints a table; into a file or a pipe, without the spaces that fill its lines."""
    if out.is_terminal:
        out.print(shown, crop=False)
        return
    with out.capture() as captured:
        out.print(shown, crop=False)
    out.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _width(text: Text) -> int:
    return max(line.cell_len for line in text.split(allow_blank=True))


def _text(cell: Cell) -> Text:
    return Text("\n").join(Text(safe(line)) for line in ((cell,) if isinstance(cell, str) else cell))
