"""Bounds of times: conditions on the two time columns become lower <= right.time - left.time <= upper, in microseconds.

A side of a comparison is read as a sum of times and spans, so that every way to write it counts: `b.t BETWEEN a.t AND
a.t + INTERVAL '5 seconds'`, `b.t - a.t <= INTERVAL '5 seconds'`, `a.t >= b.t - INTERVAL 5 SECOND`, `a.t = b.t`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow.types as pt
from sqlglot import exp

from lsmstate.sql.scope import Scope
from lsmstate.sql.spans import span_us
from lsmstate.sql.text import Text

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of right.time - left.time; None where there is none yet. equal: given as equal times."""

    lower_us: int | None = None
    upper_us: int | None = None
    equal: bool = False

    def at_least(self, us: int) -> Bounds:
        return self if self.lower_us is not None and self.lower_us >= us else replace(self, lower_us=us)

    def at_most(self, us: int) -> Bounds:
        return self if self.upper_us is not None and self.upper_us <= us else replace(self, upper_us=us)


@dataclass(frozen=True, slots=True)
class _Sum:
    """left and right: how often the two times are added; us: what besides."""

    left: int = 0
    right: int = 0
    us: int = 0

    def plus(self, other: _Sum, sign: int = 1) -> _Sum:
        return _Sum(self.left + sign * other.left, self.right + sign * other.right, self.us + sign * other.us)


def is_about_times(scope: Scope, node: exp.Expr) -> bool:
    """Whether a condition is one on the times of both tables, and on nothing else."""
    names = [scope.resolve(column) for column in node.find_all(exp.Column)]
    compares = isinstance(node, exp.Between | exp.Binary) and not isinstance(node, exp.Connector)
    return compares and all(map(scope.is_time, names)) and {name.side for name in names} == {0, 1}


def narrowed(scope: Scope, bounds: Bounds, node: exp.Expr) -> Bounds:
    """The bounds with one more condition on the times. Raises SqlError if it is none that is understood."""
    if isinstance(node, exp.Between):
        if node.args.get("symmetric"):
            raise scope.text.refuse(node, "BETWEEN SYMMETRIC is not supported; write BETWEEN lower AND upper")
        bounds = _compared(scope, bounds, node, exp.GTE, node.this, node.args["low"])
        return _compared(scope, bounds, node, exp.LTE, node.this, node.args["high"])
    return _compared(scope, bounds, node, type(node), node.this, node.args["expression"])


def _compared(
    scope: Scope,
    bounds: Bounds,
    node: exp.Expr,
    kind: type[exp.Expr],
    one: exp.Expr,
    other: exp.Expr,
) -> Bounds:
    difference = _sum(scope, one).plus(_sum(scope, other), -1)
    if difference.left == 1 and difference.right == -1:
        difference, kind = _Sum().plus(difference, -1), _FLIPPED.get(kind, kind)
    if (difference.left, difference.right) != (-1, 1) or kind not in _FLIPPED:
        raise scope.text.refuse(
            node,
            f"{scope.text.of(node)!r}: times are bounded by BETWEEN, =, <, <=, > or >=, with one time "
            "of each table, as in b.t BETWEEN a.t - INTERVAL '5 seconds' AND a.t + INTERVAL '20 seconds'",
        )
    us = -difference.us  # right - left `kind` us
    if kind is exp.EQ:
        return replace(bounds.at_least(us).at_most(us), equal=True)
    if kind in (exp.GT, exp.GTE):
        return bounds.at_least(us + (kind is exp.GT))
    return bounds.at_most(us - (kind is exp.LT))


def _sum(scope: Scope, node: exp.Expr) -> _Sum:
    if isinstance(node, exp.Paren):
        return _sum(scope, node.this)
    if isinstance(node, exp.Neg):
        return _Sum().plus(_sum(scope, node.this), -1)
    if isinstance(node, exp.Add | exp.Sub):
        sign = 1 if isinstance(node, exp.Add) else -1
        return _sum(scope, node.this).plus(_sum(scope, node.expression), sign)
    if isinstance(node, exp.Column):
        side = scope.resolve(node).side
        return _Sum(left=1) if side == 0 else _Sum(right=1)
    if isinstance(node, exp.Interval):
        return _Sum(us=interval_us(scope.text, node))
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and _are_numbers(scope):
        return _Sum(us=int(node.name[:19]))
    more = "" if not _are_numbers(scope) else ", or whole microseconds"
    told = f"{scope.text.of(node)!r}: beside times only + and - of INTERVAL '5 seconds' are supported{more}"
    raise scope.text.refuse(node, told)


def interval_us(text: Text, node: exp.Interval) -> int:
    """The length of an INTERVAL."""
    value, unit = node.this, node.args.get("unit")
    while isinstance(value, exp.Paren):
        value = value.this
    if not isinstance(value, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        raise text.refuse(node, f"{text.of(node)!r}: an interval stands as INTERVAL '5 seconds' or INTERVAL 5 SECOND")
    try:
        return span_us(value.name if unit is None else f"{value.name} {unit.name}")
    except ValueError as error:
        raise text.refuse(node, f"INTERVAL: {error}") from None


def _are_numbers(scope: Scope) -> bool:
    return all(pt.is_integer(schema.field(time).type) for schema, time in zip(scope.schemas, scope.times, strict=True))
