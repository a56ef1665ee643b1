"""The SELECT of a streaming table: two tables, how they are joined, what is selected. Its form only.

    SELECT column [AS name], alias.*, *
    FROM a [INNER | LEFT | RIGHT | FULL | LEFT SEMI | LEFT ANTI] JOIN b ON ... [WHERE ...]

Everything else that SQL knows is refused, with its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

from lsmstate.sql.text import Text

_JOINS = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "left_semi",
    ("", "SEMI"): "left_semi",
    ("LEFT", "ANTI"): "left_anti",
    ("", "ANTI"): "left_anti",
}
_KINDS = "[INNER] JOIN, LEFT, RIGHT, FULL [OUTER] JOIN, LEFT SEMI JOIN and LEFT ANTI JOIN"
_PARTS = {"expressions", "from_", "joins", "where"}
_FORM = "SELECT columns FROM a JOIN b ON ... [WHERE ...]"
_ALIAS = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Ref:
    """A table that is read, and the name that columns are qualified with."""

    table: str
    alias: str
    node: exp.Expr


@dataclass(frozen=True, slots=True)
class Item:
    """What is selected: a column, or with `star` all columns of a table (`of`) or of both."""

    column: exp.Column | None
    name: str | None
    star: bool
    of: exp.Identifier | None
    node: exp.Expr


@dataclass(frozen=True, slots=True)
class Query:
    """How two tables are joined, and what of the pairs is wanted."""

    left: Ref
    right: Ref
    how: str
    on: exp.Expr
    items: tuple[Item, ...]
    where: exp.Expr | None


def query_of(text: Text, select: exp.Select) -> Query:
    """The query of a SELECT. Raises SqlError for what is not supported."""
    for part, value in select.args.items():
        if value and part not in _PARTS:
            place = value if isinstance(value, exp.Expr) and value.find(exp.Identifier) else select
            word = "AS (...)" if part == "with_" else part.rstrip("_").upper().replace("_", " ")
            raise text.refuse(place, f"{word} is not supported; what is: {_FORM}")
    joins = select.args.get("joins") or []
    source = select.args.get("from_")
    if source is None or len(joins) != 1:
        told = f"a streaming table joins exactly two tables, and here are {len(joins) + (source is not None)}: {_FORM}"
        raise text.refuse(joins[1] if len(joins) > 1 else select, told)
    join = joins[0]
    left, right = _ref(text, source.this), _ref(text, join.this)
    if left.alias == right.alias:
        raise text.refuse(
            right.node, f"both tables are called {left.alias!r} here; give one an alias: FROM a x JOIN a y"
        )
    where = select.args.get("where")
    items = tuple(_item(text, node) for node in select.expressions)
    if not items:
        raise text.refuse(select, f"nothing is selected: {_FORM}")
    how = _how(text, join)
    return Query(left, right, how, join.args["on"], items, None if where is None else where.this)


def _how(text: Text, join: exp.Join) -> str:
    side, kind = (str(join.args.get(part) or "").upper() for part in ("side", "kind"))
    how = _JOINS.get((side, kind))
    others = {name for name, value in join.args.items() if value} - {"this", "on", "side", "kind"}
    if how is None or others - {"using"}:
        told = " ".join(filter(None, [str(join.args.get("method") or "").upper(), side, kind]))
        raise text.refuse(join, f"{told or 'this'} JOIN is not supported; what is: {_KINDS}")
    if join.args.get("on") is None:
        told = (
            "a join needs ON with equal keys and a bound on the times: ON a.k = b.k AND b.t BETWEEN a.t AND a.t + ..."
        )
        raise text.refuse(join, told)
    return how


def _ref(text: Text, node: exp.Expr) -> Ref:
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise text.refuse(node, "only tables can be joined, by their names; not subqueries or functions")
    others = {part for part, value in node.args.items() if value} - {"this", "alias"}
    alias = node.args.get("alias")
    if others or (alias is not None and alias.args.get("columns")):
        raise text.refuse(
            node, f"{text.of(node)!r}: a table stands here as `name` or `name alias`, without anything else"
        )
    name = node.this.name.lower()
    called = name if alias is None else alias.name.lower()
    if _ALIAS.fullmatch(called) is None:
        raise text.refuse(node, f"{called[:80]!r} is no alias: letters, digits and _")
    return Ref(name, called, node)


def _item(text: Text, node: exp.Expr) -> Item:
    name = node.alias if isinstance(node, exp.Alias) else None
    inner = node.this if isinstance(node, exp.Alias) else node
    star = inner if isinstance(inner, exp.Star) else inner.this if isinstance(inner, exp.Column) else None
    if isinstance(star, exp.Star):
        if name is not None or any(star.args.values()):
            raise text.refuse(node, "* stands alone: `*` or `alias.*`")
        return Item(None, None, True, inner.args.get("table"), node)
    if not isinstance(inner, exp.Column):
        raise text.refuse(
            node, f"{text.of(node)!r}: columns can be selected, as `column`, `alias.column [AS name]` or `*`"
        )
    return Item(inner, name, False, None, node)
