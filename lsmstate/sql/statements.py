"""Statements: a script becomes a list of what it asks for. Nothing is looked up here.

The heads of statements are read token by token, because no dialect knows them; the SELECT of a streaming table is read
by sqlglot. Names of tables are letters, digits and `_`, and small and capital letters are the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from lsmstate.errors import SqlError
from lsmstate.sql.text import Text

TEXT_MAX_CHARS = 1_000_000
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_KNOWN = "CREATE TABLE, CREATE STREAMING TABLE, DROP STREAMING TABLE and SHOW STREAMING TABLES"


@dataclass(frozen=True, slots=True)
class Option:
    """One of `WITH ('name' = 'value')`. at: where its value stands."""

    name: str
    value: str
    at: int


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Names something that rows are read from."""

    name: str
    options: tuple[Option, ...]
    if_not_exists: bool
    at: int


@dataclass(frozen=True, slots=True)
class CreateStreamingTable:
    """A job. sql: the statement as it was written."""

    name: str
    comment: str
    options: tuple[Option, ...]
    if_not_exists: bool
    select: exp.Select
    sql: str
    at: int


@dataclass(frozen=True, slots=True)
class DropStreamingTable:
    """Forgets a job."""

    name: str
    if_exists: bool
    at: int


@dataclass(frozen=True, slots=True)
class ShowStreamingTables:
    """Tells of all jobs."""

    at: int


Statement: TypeAlias = CreateTable | CreateStreamingTable | DropStreamingTable | ShowStreamingTables


def parse(text: Text) -> list[Statement]:
    """All statements of a script. Raises SqlError, at a line and column."""
    if len(text.sql) > TEXT_MAX_CHARS:
        raise SqlError(f"the script has {len(text.sql):,} characters, at most {TEXT_MAX_CHARS:,} are read")
    try:
        tokens = Dialect.get_or_raise("").tokenize(text.sql)
    except SqlglotError as error:
        raise text.not_understood(error, 0) from None
    statements, first = [], 0
    for number, token in enumerate([*tokens, None]):
        if token is None or token.token_type == TokenType.SEMICOLON:
            if number > first:
                statements.append(_Reader(text, tokens[first:number]).statement())
            first = number + 1
    return statements


class _Reader:
    """Reads one statement, token by token."""

    def __init__(self, text: Text, tokens: list[Token]) -> None:
        self._text, self._tokens, self._at = text, tokens, 0

    def statement(self) -> Statement:
        at = self._tokens[0].start
        if self._accept("CREATE", "STREAMING", "TABLE"):
            return self._streaming_table(at)
        if self._accept("CREATE", "TABLE"):
            return self._table(at)
        if self._accept("DROP", "STREAMING", "TABLE"):
            if_exists = self._accept("IF", "EXISTS")
            name = self._name()
            self._end()
            return DropStreamingTable(name, if_exists, at)
        told = " ".join(token.text for token in self._tokens).upper().split()  # sqlglot takes all after SHOW as a text
        if told == ["SHOW", "STREAMING", "TABLES"]:
            return ShowStreamingTables(at)
        raise self._text.refuse(at, f"{self._tokens[0].text[:40]!r} begins no statement that is known: {_KNOWN}")

    def _table(self, at: int) -> CreateTable:
        if_not_exists = self._accept("IF", "NOT", "EXISTS")
        name = self._name()
        if self._word() == "(":
            told = "a table has the columns of its files; leave the list of columns out, and go on with WITH (...)"
            raise self._text.refuse(self._tokens[self._at], told)
        if self._accept("COMMENT"):
            self._string("a comment")
        options = self._options()
        self._end()
        return CreateTable(name, options, if_not_exists, at)

    def _streaming_table(self, at: int) -> CreateStreamingTable:
        if_not_exists = self._accept("IF", "NOT", "EXISTS")
        name = self._name()
        comment = self._string("a comment") if self._accept("COMMENT") else ""
        options = self._options()
        if not comment and self._accept("COMMENT"):
            comment = self._string("a comment")
        if not self._accept("AS"):
            raise self._expected("AS SELECT ...")
        select = self._select()
        return CreateStreamingTable(
            name, comment, options, if_not_exists, select, self._text.sql[at : self._tokens[-1].end + 1], at
        )

    def _select(self) -> exp.Select:
        if self._word() != "SELECT":
            raise self._expected("SELECT")
        rest = self._tokens[self._at :]
        try:
            (tree,) = Dialect.get_or_raise("").parser().parse(rest, self._text.sql)
        except SqlglotError as error:
            raise self._text.not_understood(error, rest[0].start) from None
        except (RecursionError, ValueError):
            raise self._text.refuse(rest[0], "this SELECT is nested too deeply, or is more than one") from None
        if not isinstance(tree, exp.Select):
            raise self._text.refuse(rest[0], "a streaming table is made of one SELECT of two tables that are joined")
        return tree

    def _options(self) -> tuple[Option, ...]:
        """`WITH ('name' = 'value', ...)`."""
        if not self._accept("WITH"):
            raise self._expected("WITH ('connector' = ...)")
        if not self._accept("("):
            raise self._expected("(")
        options: list[Option] = []
        while True:
            token = self._peek()
            name = self._string("an option in quotes, such as 'path'")
            if not self._accept("="):
                raise self._expected("=")
            at = self._peek()
            value = self._string(f"the value of {name!r:.80} in quotes")
            assert token is not None
            assert at is not None
            if any(option.name == name for option in options):
                raise self._text.refuse(token, f"the option {name!r:.80} is given twice")
            options.append(Option(name, value, at.start))
            if self._accept(")"):
                return tuple(options)
            if not self._accept(","):
                raise self._expected(", or )")

    def _name(self) -> str:
        token = self._peek()
        name = "" if token is None or token.token_type == TokenType.STRING else token.text.lower()
        if _NAME.fullmatch(name) is None:
            raise self._expected("the name of a table: up to 63 letters, digits and _, not first a digit")
        self._at += 1
        return name

    def _string(self, what: str) -> str:
        token = self._peek()
        if token is None or token.token_type != TokenType.STRING:
            raise self._expected(what)
        self._at += 1
        return token.text

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _word(self) -> str | None:
        token = self._peek()
        quoted = token is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return None if token is None or quoted else token.text.upper()

    def _accept(self, *words: str) -> bool:
        """Goes past these words if they come next, all of them."""
        before = self._at
        for word in words:
            if self._word() != word:
                self._at = before
                return False
            self._at += 1
        return True

    def _end(self) -> None:
        if self._peek() is not None:
            raise self._expected("; or the end")

    def _expected(self, what: str) -> SqlError:
        token = self._peek()
        if token is None:
            return self._text.refuse(self._tokens[-1].end + 1, f"expected {what}, and here is the end")
        return self._text.refuse(token, f"expected {what}, not {token.text[:40]!r}")
