"""`lsmstate sql FILE`: executes statements, and runs the streaming tables of the catalog."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from iopool import LocalFileSystem
from lsmstate.cli.catalog_option import VARIABLE
from lsmstate.cli.terminal import Commands, console, heading, table, write_json
from lsmstate.cli.wording import count_text, safe, span_text, time_text
from lsmstate.errors import CatalogError, SqlError

if TYPE_CHECKING:
    from lsmstate.sql import Outcome, Result, Session

_STATE = "state"
_FILE_MAX_BYTES = 4_000_000
_FAILED, _INTERRUPTED = 1, 130


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "sql",
        help="executes statements of a file, and runs the streaming tables of the catalog",
        description="Executes the statements of FILE. If one of them makes a streaming table, then all of the catalog "
        "run, each from its latest checkpoint, until their sources have ended; Ctrl-C stops them with a checkpoint. A "
        "streaming table that stands in the catalog already, exactly as FILE makes it, goes on. Exit code 1: one "
        "of them failed.",
    )
    parser.add_argument("file", metavar="FILE", help="statements, each ended by ;")
    parser.add_argument(
        "--catalog",
        metavar="URL",
        help=f"sqlite:///path or postgresql://user@host/database; else ${VARIABLE}, else DIR/catalog.db",
    )
    parser.add_argument("--state", metavar="DIR", default=_STATE, help=f"for the state of tables; default: {_STATE}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Executes and runs; 1 if a streaming table failed, 130 if it was interrupted."""
    from lsmstate.sql import Session  # here, because sqlglot and SQLAlchemy would delay every other command too

    url = arguments.catalog or os.environ.get(VARIABLE) or f"sqlite:///{arguments.state}/catalog.db"
    try:
        session = Session(url, arguments.state)
    except ValueError as error:  # its text does not repeat the URL
        raise CatalogError(str(error)) from None
    results = session.execute(_text(arguments.file), resume=True)
    out = console()
    if not arguments.json:
        _show_results(out, results)
    outcomes: Mapping[str, Outcome] = {}
    interrupted = False
    if any(result.statement == "create streaming table" for result in results):
        outcomes, interrupted = _watched(out, session, quiet=arguments.json)
    tables = [_told(name, outcome, session, interrupted) for name, outcome in sorted(outcomes.items())]
    if arguments.json:
        shown = [_result(result) for result in results]
        write_json({"schema": "lsmstate.sql/1", "results": shown, "tables": tables, "interrupted": interrupted})
    elif tables:
        _show_tables(out, tables)
    failed = any(told["error"] is not None for told in tables)
    return _INTERRUPTED if interrupted else _FAILED if failed else 0


def _text(path: str) -> str:
    data = LocalFileSystem().read(path, _FILE_MAX_BYTES)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SqlError(f"{path}: is not UTF-8, at byte {error.start}") from None


def _watched(out: Console, session: Session, *, quiet: bool) -> tuple[Mapping[str, Outcome], bool]:
    """Runs a session, shown on a terminal while it runs; gives what became of it, and whether it was interrupted."""
    session.start()
    live = Live(_Screen(session), console=out, refresh_per_second=4, transient=True)
    try:
        if quiet or not out.is_terminal:
            return session.wait(), False
        with live:
            return session.wait(), False
    except KeyboardInterrupt:
        if not quiet:
            out.print("\nInterrupted: each table makes a last checkpoint. Once more, and it stops without")
        return session.stop(), True


class _Screen:
    """How far the streaming tables are; drawn anew each time."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __rich__(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=True)
        for name, job in sorted(self._session.jobs.items()):
            read = ", ".join(f"{safe(source)} {rows:,}" for source, rows in sorted(job.progress.rows_in.items()))
            epoch = "not started" if job.epoch is None else f"epoch {job.epoch}"
            grid.add_row(safe(name), epoch, f"read {read}", f"written {job.progress.rows_out:,}")
        return grid


def _told(name: str, outcome: Outcome, session: Session, interrupted: bool) -> dict[str, Any]:
    """What became of a streaming table."""
    job = session.jobs.get(name)
    end = "failed" if outcome.error is not None else "stopped" if interrupted else "ended"
    return {
        "name": name,
        "end": end,
        "epoch": outcome.epoch,
        "rows_read": {} if job is None else dict(sorted(job.progress.rows_in.items())),
        "rows_written": 0 if job is None else job.progress.rows_out,
        "error": None if outcome.error is None else str(outcome.error),
    }


def _result(result: Result) -> dict[str, Any]:
    rows = [{**row, "created_us": row["created_ms"] * 1000} for row in result.rows]
    for row in rows:
        del row["created_ms"]
    return {"statement": result.statement, "table": result.table, "text": result.text, "rows": rows}


def _show_results(out: Console, results: Sequence[Result]) -> None:
    for result in results:
        out.print(safe(result.text), soft_wrap=True)
        if result.rows:
            columns = ("table", ">epoch", ">every", "=created", "comment", "source checkpoints")
            table(out, columns, [_cells(row) for row in result.rows])


def _cells(row: Mapping[str, Any]) -> list[str]:
    sources = ", ".join(f"{name}: {told.get('file', 'begin')}" for name, told in row["source_checkpoints"].items())
    every = span_text(row["checkpoint_interval_ms"] * 1000)
    epoch = str(row["latest_checkpoint_epoch"] or "none")
    return [row["name"], epoch, every, time_text(row["created_ms"] * 1000), row["comment"], sources or "none"]


def _show_tables(out: Console, tables: Sequence[Mapping[str, Any]]) -> None:
    heading(out, f"{count_text(len(tables), 'streaming table')} ran")
    rows = [
        [
            told["name"],
            told["end"],
            "none" if told["epoch"] is None else str(told["epoch"]),
            f"{sum(told['rows_read'].values()):,}",
            f"{told['rows_written']:,}",
        ]
        for told in tables
    ]
    table(out, ("table", "end", ">epoch", ">rows read", ">rows written"), rows)
    for told in tables:
        if told["error"] is not None:
            out.print(f"FAILED {safe(told['name'])}: {safe(told['error'])}", style="red", soft_wrap=True)
