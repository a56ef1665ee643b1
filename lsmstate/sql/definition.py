"""The definition of a streaming table: what the catalog keeps of it, enough to make its job anywhere, at any time.

    {"format": 1, "sql": the statement as written, "options": ..., "state": a directory,
     "tables": {name: {"options": ..., "schema": base64}}}

Options are checked and paths are absolute; the columns of its tables are those of the day it was made. Its comment and
its interval are columns of the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from lsmstate.checkpoint.catalog.text import without_credentials
from lsmstate.errors import CatalogError, SqlError
from lsmstate.sql.options import interval_ms
from lsmstate.sql.plan import Plan, plan_of
from lsmstate.sql.statements import CreateStreamingTable, parse
from lsmstate.sql.table import Table
from lsmstate.sql.text import Text

FORMAT = 1
_ASKED = ("path", "time")


@dataclass(frozen=True)
class Definition:
    """A streaming table without its name. state: the directory for its state."""

    sql: str
    options: Mapping[str, str]
    tables: Mapping[str, Table]
    state: str

    @cached_property
    def plan(self) -> Plan:
        """What it does. Raises SqlError."""
        return plan_of(Text(self.sql), self._statement.select, self.tables, self.options)

    @property
    def comment(self) -> str:
        """What its statement says of it."""
        return self._statement.comment

    @property
    def checkpoint_interval_ms(self) -> int:
        """How often it makes a checkpoint."""
        return interval_ms(self.options)

    @property
    def place(self) -> str:
        """Where its rows go: no two streaming tables can share it."""
        options = self.options
        return options["path"] if "path" in options else f"{options['url']} {options['table']}"

    @cached_property
    def _statement(self) -> CreateStreamingTable:
        statements = parse(Text(self.sql))
        if len(statements) != 1 or not isinstance(statements[0], CreateStreamingTable):
            raise SqlError("the definition of a streaming table is one CREATE STREAMING TABLE")
        return statements[0]

    def describe(self) -> dict[str, Any]:
        """As JSON. Raises SqlError if there is a credential in it, which the catalog would not keep."""
        told = {
            "format": FORMAT,
            "sql": self.sql,
            "options": dict(self.options),
            "state": self.state,
            "tables": {name: table.describe() for name, table in self.tables.items()},
        }
        if without_credentials(told) != told:
            raise SqlError(
                "the statement holds what looks like a credential. The catalog keeps none, and could not bring the "
                "table back: leave it out"
            )
        return told

    @classmethod
    def parse(cls, name: str, told: Mapping[str, Any]) -> Definition:
        """The definition that `describe` told of. Raises CatalogError if it is none."""
        try:
            if told["format"] != FORMAT:
                raise CatalogError(
                    f"streaming table {name!r}: was made by a newer lsmstate; upgrade to run it", "newer"
                )
            tables = {str(table): Table.parse(str(table), given) for table, given in told["tables"].items()}
            options = {str(key): str(value) for key, value in told["options"].items()}
            made = cls(str(told["sql"]), options, tables, str(told["state"]))
            needed = [
                made.place,
                options["connector"],
                *(table.options[name] for table in tables.values() for name in _ASKED),
            ]
            if not all(needed):
                raise ValueError("an option is empty")
            return made
        except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
            why = f"its definition in the catalog cannot be used ({type(error).__name__}); drop it and make it again"
            raise CatalogError(f"streaming table {name!r}: {why}", "damaged") from error

    def difference(self, other: Definition) -> str | None:
        """In words, how another definition differs; None if it is the same table."""
        changed = [
            what
            for what, one, another in (
                ("its statement", _words(self.sql), _words(other.sql)),
                ("its options", dict(self.options), dict(other.options)),
                ("its tables", self._tables_told(), other._tables_told()),
                ("its state directory", self.state, other.state),
            )
            if one != another
        ]
        return " and ".join(changed) or None

    def _tables_told(self) -> dict[str, Any]:
        return {name: table.describe() for name, table in self.tables.items()}


def _words(sql: str) -> str:
    return " ".join(sql.split())
