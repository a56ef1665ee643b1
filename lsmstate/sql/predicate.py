"""Predicates: conditions of WHERE, and of ON besides keys and times, as expressions of Arrow.

Comparisons of columns and constants, IN, BETWEEN, IS NULL, AND, OR, NOT; NULL means unknown, as in SQL. All else is
refused, and so is a comparison of types that cannot be compared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lsmstate.errors import LsmStateError
from lsmstate.join.condition import fulfils
from lsmstate.sql.text import Text

Resolve = Callable[[exp.Column], pc.Expression]
_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_VALUES = "columns, numbers, texts, TRUE, FALSE and TIMESTAMP '...'"
_KNOWN = "comparisons of columns and constants, IN (...), BETWEEN, IS [NOT] NULL, AND, OR and NOT"


def predicate(text: Text, node: exp.Expr, resolve: Resolve, schema: pa.Schema) -> pc.Expression:
    """A condition on rows with these columns. Raises SqlError."""
    built = _built(text, node, resolve)
    try:
        fulfils(built, pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema))
    except LsmStateError as error:
        why = str(error.__cause__ or error).partition("\n")[0]
        told = f"{text.of(node)!r} cannot be decided ({why}); compare values of one type, and dates as TIMESTAMP '...'"
        raise text.refuse(node, told) from None
    return built


def _built(text: Text, node: exp.Expr, resolve: Resolve) -> pc.Expression:
    if isinstance(node, exp.Paren):
        return _built(text, node.this, resolve)
    if isinstance(node, exp.And):
        return _built(text, node.left, resolve) & _built(text, node.right, resolve)
    if isinstance(node, exp.Or):
        return _built(text, node.left, resolve) | _built(text, node.right, resolve)
    if isinstance(node, exp.Not):
        return ~_built(text, node.this, resolve)
    if isinstance(node, exp.Binary) and type(node) in _COMPARISONS:
        return _COMPARISONS[type(node)](_value(text, node.left, resolve), _value(text, node.right, resolve))
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return _value(text, node.this, resolve).is_null()
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        value = _value(text, node.this, resolve)
        return (value >= _value(text, node.args["low"], resolve)) & (value <= _value(text, node.args["high"], resolve))
    if isinstance(node, exp.In) and node.expressions:
        value = _value(text, node.this, resolve)
        equal = [value == _value(text, one, resolve) for one in node.expressions]
        built = equal[0]
        for one in equal[1:]:  # not Arrow's is_in, for which NULL is no
            built = built | one
        return built
    if isinstance(node, exp.Column):
        return resolve(node)
    raise text.refuse(node, f"{text.of(node)!r} is not supported in a condition; what is: {_KNOWN}")


def _value(text: Text, node: exp.Expr, resolve: Resolve) -> pc.Expression:
    if isinstance(node, exp.Paren):
        return _value(text, node.this, resolve)
    if isinstance(node, exp.Column):
        return resolve(node)
    if isinstance(node, exp.Boolean):
        return pc.scalar(bool(node.this))
    sign, literal = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if isinstance(literal, exp.Literal) and not literal.is_string:
        number = _number(text, literal)
        return pc.scalar(sign * number)
    if isinstance(node, exp.Literal):
        return pc.scalar(node.name)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        return pc.scalar(_timestamp(text, node))
    raise text.refuse(node, f"{text.of(node)!r} is not supported in a comparison; what is: {_VALUES}")


def _number(text: Text, literal: exp.Literal) -> int | float:
    try:
        number = int(literal.name) if literal.name.isdigit() else float(literal.name)
        pa.scalar(number)
    except (ValueError, OverflowError, pa.ArrowException):
        raise text.refuse(literal, f"{literal.name[:40]!r} is no number that can be compared") from None
    return number


def _timestamp(text: Text, node: exp.Cast) -> pa.Scalar:
    """TIMESTAMP '2026-01-31 10:00:00' has no zone; one with an offset is a time of UTC."""
    kind = node.to.this
    kinds = exp.DataType.Type
    try:
        told = datetime.fromisoformat(node.this.name)
    except ValueError:
        told = None
    if told is None or kind not in (kinds.TIMESTAMP, kinds.TIMESTAMPNTZ, kinds.TIMESTAMPTZ):
        raise text.refuse(node, f"{text.of(node)!r}: a time stands as TIMESTAMP '2026-01-31 10:00:00'")
    if told.tzinfo is None and kind != kinds.TIMESTAMPTZ:
        return pa.scalar(told, pa.timestamp("us"))
    if told.tzinfo is None:
        raise text.refuse(node, f"{text.of(node)!r}: a time with a zone tells its offset: '2026-01-31 10:00:00+00:00'")
    return pa.scalar(told.astimezone(UTC), pa.timestamp("us", "UTC"))
