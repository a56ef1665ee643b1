"""A session: statements are executed, and the streaming tables of a catalog run.

    session = Session("sqlite:///state/catalog.db", state="state")
    session.execute("CREATE TABLE ...; CREATE STREAMING TABLE ... AS SELECT ...")
    session.run()

Statements are checked, all of them, before the first one changes anything. A streaming table stands in the catalog, and
runs from what stands there; a table that is read from is known to the session only. Any thread may call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from iopool import LocalFileSystem
from lsmstate.checkpoint.catalog import Catalog, JobRow
from lsmstate.checkpoint.catalog.address import Address
from lsmstate.checkpoint.master import JobMaster, Outcome
from lsmstate.checkpoint.pipeline import Pipeline
from lsmstate.errors import CheckpointError
from lsmstate.sql.job import KIND, Job, job_of
from lsmstate.sql.script import Action, Drop, Known, Make, Show, prepare
from lsmstate.sql.statements import parse
from lsmstate.sql.table import Table
from lsmstate.sql.text import Text

_CATALOG, _STATE = "sqlite:///state/catalog.db", "state"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a statement: in words, and for SHOW the rows. table: the one that it is about."""

    statement: str
    table: str | None
    text: str
    rows: tuple[Mapping[str, Any], ...] = ()


class Session:
    """catalog: the URL of the catalog. state: the directory for the state of tables that are made here."""

    def __init__(self, catalog: str = _CATALOG, state: str | os.PathLike[str] = _STATE) -> None:
        self._fs = LocalFileSystem()
        Address.parse(self._fs, catalog)
        self._catalog, self._state = catalog, self._fs.resolve(os.fspath(state))
        self._tables: dict[str, Table] = {}
        self._master: JobMaster | None = None
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables that can be read from."""
        return MappingProxyType(self._tables)

    def execute(self, text: str, *, resume: bool = False) -> list[Result]:
        """Executes statements; gives what became of each. resume: a streaming table that is made again exactly as it
        stands in the catalog is no error, it goes on. Raises SqlError before anything was changed."""
        script = Text(text)
        with self._lock:
            actions = prepare(script, parse(script), self._tables, self._state, self._fs)
            tables = {**self._tables, **{action.name: action for action in actions if isinstance(action, Table)}}
            results: list[Result] = []
            if any(not isinstance(action, Table) for action in actions):
                with Catalog.open(self._catalog) as catalog:
                    known: Known = {row.name: row for row in catalog.jobs()}
                    steps = [self._step(script, action, known, resume) for action in actions]
                    results = [step(catalog) for step in steps]
            else:
                results = [_named(action) for action in actions if isinstance(action, Table)]
            self._tables = tables
            return results

    def run(self) -> dict[str, Outcome]:
        """Runs all streaming tables of the catalog until their sources have ended; gives what became of each.
        Interrupted, it stops them with a savepoint."""
        self.start()
        try:
            return self.wait()
        except KeyboardInterrupt:
            self.stop()
            raise

    def start(self) -> dict[str, Outcome]:
        """Starts all streaming tables of the catalog, each at its epoch; gives those that could not be started."""
        with self._lock:
            if self._master is not None:
                raise CheckpointError("the session runs already: wait() for it, or stop() it")
            with Catalog.open(self._catalog) as catalog:
                rows = {row.name: row for row in catalog.jobs() if row.kind == KIND}
            self._jobs = {}
            self._master = JobMaster(self._catalog, {name: partial(self._make, row) for name, row in rows.items()})
            for name in rows:
                self._master.start(name)
            return {name: told for name, told in self._master.outcomes.items() if told.error is not None}

    def wait(self) -> dict[str, Outcome]:
        """Waits until all have ended; gives what became of each."""
        outcomes = self._running().wait()
        self._master = None
        return outcomes

    def stop(self, *, savepoint: bool = True) -> dict[str, Outcome]:
        """Stops all, each with a last checkpoint unless told; gives what became of each."""
        outcomes = self._running().stop(savepoint=savepoint)
        self._master = None
        return outcomes

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The streaming tables of this run, by name."""
        return MappingProxyType(self._jobs)

    # ---- inside

    def _running(self) -> JobMaster:
        if self._master is None:
            raise CheckpointError("the session does not run; start() it")
        return self._master

    def _make(self, row: JobRow) -> Pipeline:
        job = job_of(self._catalog, row)
        self._jobs = {**self._jobs, row.name: job}
        return job.pipeline

    def _step(self, script: Text, action: Action, known: Known, resume: bool) -> Callable[[Catalog], Result]:
        """What an action will do; `known` follows along. Raises SqlError if it cannot be done."""
        if isinstance(action, Table):
            return lambda catalog: _named(action)
        if isinstance(action, Show):
            return _shown
        if isinstance(action, Drop):
            if action.check(script, known, runs=self._master is not None):
                return partial(_dropped, action)
            return lambda catalog: Result("drop", action.name, f"there is no streaming table {action.name}")
        is_new = action.check(script, known, self._fs, resume=resume)
        return partial(_made if is_new else _kept, action)


def restore(catalog: str) -> Session:
    """Brings back every streaming table of a catalog, each at its epoch, from what the catalog tells alone. Gives the
    session that runs them; what could not be started, its `wait` tells."""
    session = Session(catalog)
    session.start()
    return session


def _named(table: Table) -> Result:
    return Result("create table", table.name, f"table {table.name}: {', '.join(table.schema.names)}")


def _made(action: Make, catalog: Catalog) -> Result:
    made = action.definition
    interval = made.checkpoint_interval_ms
    catalog.register(
        action.name, kind=KIND, definition=made.describe(), comment=made.comment, checkpoint_interval_ms=interval
    )
    told = f"streaming table {action.name} is made; a checkpoint every {interval:,} ms"
    return Result("create streaming table", action.name, told)


def _kept(action: Make, catalog: Catalog) -> Result:
    return Result("create streaming table", action.name, f"streaming table {action.name} is there, and stays as it is")


def _dropped(action: Drop, catalog: Catalog) -> Result:
    row = catalog.job(action.name)
    catalog.drop(action.name)
    told = f"streaming table {action.name} is dropped; its rows stay where they are"
    if row is not None and isinstance(state := row.definition.get("state"), str):
        told += f", and its state can be removed: {state}/{row.job_id}"
    return Result("drop streaming table", action.name, told)


def _shown(catalog: Catalog) -> Result:
    rows = tuple(_row(row) for row in catalog.jobs() if row.kind == KIND)
    return Result("show streaming tables", None, f"{len(rows)} streaming table{'' if len(rows) == 1 else 's'}", rows)


def _row(row: JobRow) -> dict[str, Any]:
    """What the catalog keeps of a streaming table."""
    return {
        "name": row.name,
        "created_ms": row.created_ms,
        "definition": row.definition.get("sql", ""),
        "options": row.definition.get("options", {}),
        "comment": row.comment,
        "checkpoint_interval_ms": row.checkpoint_interval_ms,
        "latest_checkpoint_epoch": row.latest_checkpoint_epoch,
        "source_checkpoints": {name: dict(told) for name, told in row.source_checkpoints.items()},
    }
