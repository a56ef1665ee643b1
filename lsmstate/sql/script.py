"""A script made ready: each statement is checked against its tables, and then against what the catalog knows.

Two steps, so that a script that is wrong changes nothing: `prepare` needs no catalog; `check` follows, statement by
statement, which streaming tables there would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from iopool import FileSystem
from lsmstate.checkpoint.catalog import JobRow
from lsmstate.errors import CatalogError, SqlError
from lsmstate.sql.definition import Definition
from lsmstate.sql.job import KIND
from lsmstate.sql.options import streaming_table_options
from lsmstate.sql.plan import plan_of
from lsmstate.sql.statements import CreateStreamingTable, CreateTable, DropStreamingTable, Statement
from lsmstate.sql.table import Table, table_of
from lsmstate.sql.text import Text

Known: TypeAlias = dict[str, JobRow | Definition]  # what stands in the catalog, or would by now


@dataclass(frozen=True, slots=True)
class Make:
    """Makes a streaming table."""

    name: str
    definition: Definition
    if_not_exists: bool
    at: int

    def check(self, text: Text, known: Known, fs: FileSystem, *, resume: bool) -> bool:
        """Whether it is new; False if it is there already, and may be. Raises SqlError otherwise."""
        found = known.get(self.name)
        if found is None:
            self._check_place(text, known, fs)
            known[self.name] = self.definition
            return True
        if isinstance(found, JobRow) and found.kind != KIND:
            told = f"{self.name!r} is a job of kind {found.kind} in the catalog; take another name"
            raise text.refuse(self.at, told)
        if self.if_not_exists:
            return False
        told = (
            f"streaming table {self.name!r} exists already; drop it before, or write IF NOT EXISTS to keep it as it is"
        )
        if resume and isinstance(found, JobRow):
            difference = Definition.parse(self.name, found.definition).difference(self.definition)
            if difference is None:
                return False
            told += f". It was made otherwise: {difference} changed"
        raise text.refuse(self.at, told)

    def _check_place(self, text: Text, known: Known, fs: FileSystem) -> None:
        for name, other in known.items():
            place = _place_of(name, other)
            if place is not None and place == self.definition.place:
                raise text.refuse(self.at, f"streaming table {name!r} writes to the same place; name another")
        path = self.definition.options.get("path")
        kind = None if path is None else fs.kind(path)
        if path is not None and kind is not None and (kind != "dir" or any(_is_shown(n) for n in fs.list_dir(path))):
            raise text.refuse(
                self.at, f"{path}: is no empty directory, and the table is new; name another, or remove it"
            )


@dataclass(frozen=True, slots=True)
class Drop:
    """Drops a streaming table."""

    name: str
    if_exists: bool
    at: int

    def check(self, text: Text, known: Known, *, runs: bool) -> bool:
        """Whether there is one to drop. Raises SqlError if there has to be, or if it may be running."""
        found = known.get(self.name)
        if found is None or (isinstance(found, JobRow) and found.kind != KIND):
            if self.if_exists and found is None:
                return False
            tables = ", ".join(sorted(name for name, one in known.items() if _place_of(name, one) is not None))
            raise text.refuse(self.at, f"there is no streaming table {self.name!r}; there are: {tables or 'none'}")
        if runs:
            raise text.refuse(self.at, "the session runs; stop() it before a table is dropped")
        del known[self.name]
        return True


@dataclass(frozen=True, slots=True)
class Show:
    """Shows all streaming tables."""


Action: TypeAlias = Table | Make | Drop | Show


def prepare(
    text: Text, statements: Sequence[Statement], tables: Mapping[str, Table], state: str, fs: FileSystem
) -> list[Action]:
    """What the statements ask for, each of them possible as far as its tables go. Raises SqlError."""
    named = dict(tables)
    actions: list[Action] = []
    for statement in statements:
        if isinstance(statement, CreateTable):
            table = _named(text, statement, named, fs)
            named[table.name] = table
            actions.append(table)
        elif isinstance(statement, CreateStreamingTable):
            actions.append(_made(text, statement, named, state, fs))
        elif isinstance(statement, DropStreamingTable):
            actions.append(Drop(statement.name, statement.if_exists, statement.at))
        else:
            actions.append(Show())
    return actions


def _named(text: Text, statement: CreateTable, named: Mapping[str, Table], fs: FileSystem) -> Table:
    if statement.name not in named:
        return table_of(text, statement, fs)
    if statement.if_not_exists:
        return named[statement.name]
    told = f"table {statement.name!r} exists already in this session; write IF NOT EXISTS to keep it"
    raise text.refuse(statement.at, told)


def _made(text: Text, statement: CreateStreamingTable, named: Mapping[str, Table], state: str, fs: FileSystem) -> Make:
    if statement.name in named:
        raise text.refuse(statement.at, f"{statement.name!r} is a table that is read from; take another name")
    options = streaming_table_options(text, statement.at, statement.options, fs)
    plan = plan_of(text, statement.select, named, options)
    used = {one.table.name: one.table for one in plan.inputs}
    definition = Definition(statement.sql, options, used, state)
    for table in used.values():
        if table.options["path"] == options.get("path"):
            raise text.refuse(
                statement.at, f"its rows cannot go to {options['path']}, which table {table.name!r} reads"
            )
    try:
        definition.describe()
    except SqlError as error:
        raise text.refuse(statement.at, str(error)) from None
    return Make(statement.name, definition, statement.if_not_exists, statement.at)


def _is_shown(name: str) -> bool:
    """Whether readers of a directory see a file."""
    return name[0] not in "._"


def _place_of(name: str, one: JobRow | Definition) -> str | None:
    """Where the rows of a streaming table go; None if it is none, or is damaged."""
    if isinstance(one, Definition):
        return one.place
    if one.kind != KIND:
        return None
    try:
        return Definition.parse(name, one.definition).place
    except (CatalogError, KeyError):
        return ""
