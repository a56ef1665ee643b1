"""The ON of a join, taken apart: equal keys, bounds of times, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from lsmstate.sql.bounds import Bounds, is_about_times, narrowed
from lsmstate.sql.scope import Name, Scope


@dataclass(frozen=True, slots=True)
class Conditions:
    """keys: pairs of a left and a right column. rest: conditions on the pair besides, all of which must hold."""

    keys: tuple[tuple[Name, Name], ...]
    bounds: Bounds
    rest: tuple[exp.Expr, ...]


def conditions_of(scope: Scope, on: exp.Expr, *, may_be_unbound: bool) -> Conditions:
    """What an ON says. may_be_unbound: whether times may be left out. Raises SqlError."""
    keys: list[tuple[Name, Name]] = []
    rest: list[exp.Expr] = []
    bounds = Bounds()
    for node in _conjuncts(on):
        if is_about_times(scope, node):
            bounds = narrowed(scope, bounds, node)
        elif (pair := _key(scope, node)) is not None and not _is_used(keys, pair):
            keys.append(pair)
        else:
            rest.append(node)
    if not keys:
        told = "the ON of a join needs at least one equal key: a.k = b.k"
        raise scope.text.refuse(on, told)
    _check(scope, on, bounds, may_be_unbound)
    return Conditions(tuple(keys), bounds, tuple(rest))


def _check(scope: Scope, on: exp.Expr, bounds: Bounds, may_be_unbound: bool) -> None:
    lower, upper = bounds.lower_us, bounds.upper_us
    left, right = (f"{ref.alias}.{time}" for ref, time in zip(scope.refs, scope.times, strict=True))
    example = f"{right} BETWEEN {left} - INTERVAL '5 seconds' AND {left} + INTERVAL '20 seconds'"
    if lower is None and upper is None:
        if may_be_unbound:
            return
        raise scope.text.refuse(
            on,
            f"the ON of a join needs a bound on the times, or its state would grow without limit: {example}; or "
            f"{left} = {right}; or the option 'ttl' = '1 hour' of the streaming table",
        )
    if may_be_unbound:
        raise scope.text.refuse(on, "the times are bounded here and by the option 'ttl': leave one of the two out")
    if lower is None or upper is None:
        missing = f"earlier than {left}" if lower is None else f"later than {left}"
        raise scope.text.refuse(on, f"nothing says how much {missing} {right} may be; bound it on both ends: {example}")
    if lower > upper:
        raise scope.text.refuse(on, "no times fulfil these conditions: the lower bound is above the upper one")


def _key(scope: Scope, node: exp.Expr) -> tuple[Name, Name] | None:
    """The pair of columns that must be equal, the left one first; None if the condition is another."""
    if not isinstance(node, exp.EQ) or not isinstance(node.left, exp.Column) or not isinstance(node.right, exp.Column):
        return None
    one, other = scope.resolve(node.left), scope.resolve(node.right)
    if one.side == other.side or scope.is_time(one) or scope.is_time(other):
        return None
    return (one, other) if one.side == 0 else (other, one)


def _is_used(keys: list[tuple[Name, Name]], pair: tuple[Name, Name]) -> bool:
    """Whether a column is part of the key already: it can be that once, and is compared besides."""
    return any(one == pair[0] or other == pair[1] for one, other in keys)


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that AND holds together, in their order."""
    left = [node]
    while left:
        one = left.pop()
        if isinstance(one, exp.And):
            left += [one.right, one.left]
        elif isinstance(one, exp.Paren):
            left.append(one.this)
        else:
            yield one
