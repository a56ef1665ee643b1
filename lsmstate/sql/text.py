"""The text of a script, and where in it something stands: every refusal names its line and column.

Owns the way from nodes and tokens of sqlglot back to the text. Threading: immutable values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import Token, exp
from sqlglot.errors import ParseError, SqlglotError

from lsmstate.errors import SqlError

_GOT_TOKEN = re.compile(r"<Token token_type: TokenType\.(\w+), text: (.*?), line: .*>$", re.DOTALL)
_REQUIRED = re.compile(r"Required keyword: '(\w+)' missing for <class '[\w.]*\.(\w+)'>")


@dataclass(frozen=True, slots=True)
class Text:
    """A script."""

    sql: str

    def at(self, start: int) -> tuple[int, int]:
        """Line and column of a character, from 1."""
        start = min(max(start, 0), len(self.sql))
        return self.sql.count("\n", 0, start) + 1, start - self.sql.rfind("\n", 0, start)

    def refuse(self, where: exp.Expr | Token | int, told: str) -> SqlError:
        """An error that names the place."""
        return SqlError(told, *self.at(start_of(where)))

    def of(self, node: exp.Expr) -> str:
        """What a node looks like, short."""
        shown = node.sql()
        return shown if len(shown) <= 80 else f"{shown[:77]}..."

    def not_understood(self, error: SqlglotError, start: int) -> SqlError:
        """An error of the parser, in our words; `start` is where the statement begins."""
        if not isinstance(error, ParseError) or not error.errors:
            return self.refuse(start, "cannot be read; is a quote or a comment left open?")
        first = error.errors[0]
        told = str(first.get("description") or "cannot be read")
        told = _GOT_TOKEN.sub(lambda got: "the end" if got[1] == "SENTINEL" else repr(got[2][:40]), told)
        told = _REQUIRED.sub(lambda got: f"something is missing in {got[2]}", told)
        column = int(first.get("col") or 1) - max(len(str(first.get("highlight") or "")) - 1, 0)
        return SqlError(f"cannot be read: {told}", int(first.get("line") or 1), max(column, 1))


def start_of(where: exp.Expr | Token | int) -> int:
    """Where something begins: for a node, the first of its parts that knows; or what it is a part of."""
    if isinstance(where, int):
        return where
    if isinstance(where, Token):
        return int(where.start)
    node: exp.Expr | None = where
    while node is not None:
        known = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
        if known:
            return min(known)
        node = node.parent
    return 0
