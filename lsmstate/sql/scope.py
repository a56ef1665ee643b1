"""The scope of a query: which column a name means. Small and capital letters are the same where that is unambiguous."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from lsmstate.errors import SqlError
from lsmstate.sql.query import Ref
from lsmstate.sql.text import Text


@dataclass(frozen=True, slots=True)
class Name:
    """A column of a side: 0 left, 1 right."""

    side: int
    column: str


@dataclass(frozen=True)
class Scope:
    """The two tables of a query. times: their columns of event time."""

    text: Text
    refs: tuple[Ref, Ref]
    schemas: tuple[pa.Schema, pa.Schema]
    times: tuple[str, str]

    def resolve(self, column: exp.Column) -> Name:
        """The column that a name means. Raises SqlError."""
        if column.args.get("db") is not None or not isinstance(column.this, exp.Identifier):
            raise self.text.refuse(column, f"{self.text.of(column)!r}: a column stands as `column` or `alias.column`")
        table, name = column.args.get("table"), column.name
        sides = (0, 1) if table is None else (self.side(table),)
        found = [Name(side, match) for side in sides for match in self._matches(side, name)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise self._missing(column, name, sides)
        told = " or ".join(f"{self.refs[one.side].alias}.{one.column}" for one in found)
        raise self.text.refuse(column, f"{name[:80]!r} may be {told}: say which")

    def side(self, table: exp.Identifier) -> int:
        """The side that an alias means. Raises SqlError."""
        for number, ref in enumerate(self.refs):
            if ref.alias == table.name.lower():
                return number
        known = " and ".join(ref.alias for ref in self.refs)
        raise self.text.refuse(table, f"no table is called {table.name[:80]!r} here; there are {known}")

    def qualified(self, name: Name) -> str:
        """The name of a column in the join: `alias.column`. An alias has no dot, so names never meet."""
        return f"{self.refs[name.side].alias}.{name.column}"

    def type_of(self, name: Name) -> pa.DataType:
        """The type of a column."""
        return self.schemas[name.side].field(name.column).type

    def is_time(self, name: Name) -> bool:
        """Whether a column is the event time of its side."""
        return self.times[name.side] == name.column

    def _matches(self, side: int, name: str) -> list[str]:
        names = self.schemas[side].names
        if name in names:
            return [name]
        return [column for column in names if column.lower() == name.lower()]

    def _missing(self, column: exp.Column, name: str, sides: tuple[int, ...]) -> SqlError:
        told = "; ".join(f"{self.refs[side].alias} has {', '.join(self.schemas[side].names)}" for side in sides)
        return self.text.refuse(column, f"there is no column {name[:80]!r}: {told}")
