"""The plan of a streaming table: a query over tables whose columns are known becomes a join and a selection.

In the join a column is called `alias.column`, so that the two sides keep apart what SQL keeps apart: in an outer join
the key of a missing row is NULL. Only the columns that somebody asks for go into the join and its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lsmstate.join.operator import JoinOperator
from lsmstate.join.operators import ExpiringJoin, InstantJoin, IntervalJoin
from lsmstate.schema import Side
from lsmstate.sql.conditions import Conditions, conditions_of
from lsmstate.sql.predicate import predicate
from lsmstate.sql.query import Item, Query, query_of
from lsmstate.sql.scope import Name, Scope
from lsmstate.sql.spans import span_us
from lsmstate.sql.table import Table
from lsmstate.sql.text import Text

_LEFT_ONLY = ("left_semi", "left_anti")
_SUFFIX = "_right"


@dataclass(frozen=True)
class Input:
    """One side: the name of its source, its table, and its columns in the join: (column, name there)."""

    source: str
    table: Table
    columns: tuple[tuple[str, str], ...]
    time: str


@dataclass(frozen=True)
class Plan:
    """selected: (name in the join, name in the result). where: on the columns of the join."""

    inputs: tuple[Input, Input]
    make_join: Callable[[], JoinOperator]
    selected: tuple[tuple[str, str], ...]
    where: pc.Expression | None


def plan_of(text: Text, select: exp.Select, tables: Mapping[str, Table], options: Mapping[str, str]) -> Plan:
    """The plan of a SELECT with these tables. Raises SqlError."""
    query = query_of(text, select)
    for ref in (query.left, query.right):
        if ref.table not in tables:
            known = ", ".join(sorted(tables)) or "none yet"
            told = f"there is no table {ref.table[:80]!r}; name it with CREATE TABLE before. There are: {known}"
            raise text.refuse(ref.node, told)
    left, right = tables[query.left.table], tables[query.right.table]
    scope = Scope(text, (query.left, query.right), (left.schema, right.schema), (left.time, right.time))
    return _Planning(scope, query, (left, right), options).plan()


class _Planning:
    def __init__(self, scope: Scope, query: Query, tables: tuple[Table, Table], options: Mapping[str, str]) -> None:
        self._scope, self._query, self._tables = scope, query, tables
        self._ttl = options.get("ttl")
        self._used: set[Name] = {Name(side, scope.times[side]) for side in (0, 1)}

    def plan(self) -> Plan:
        scope, query = self._scope, self._query
        told = conditions_of(scope, query.on, may_be_unbound=self._ttl is not None)
        self._used.update(name for pair in told.keys for name in pair)
        selected = tuple(self._selected())
        self._use(*told.rest)
        if query.where is not None:
            self._use(query.where, of_result=True)
        inputs = self._input(0), self._input(1)
        pairs = pa.schema([field for side in (0, 1) for field in self._fields(side, inputs[side])])
        condition = self._condition(told, pairs)
        where = None if query.where is None else predicate(scope.text, query.where, self._field, pairs)
        make = self._join(told, inputs, condition)
        try:
            make()
        except ValueError as error:
            raise scope.text.refuse(query.on, str(error)) from None
        return Plan(inputs, make, selected, where)

    # ---- columns

    def _selected(self) -> Iterator[tuple[str, str]]:
        """What is selected, by its names in the join and in the result."""
        taken: set[str] = set()
        for item in self._query.items:
            for name, called in self._expanded(item):
                if item.star and called.lower() in taken and name.side == 1:
                    called += _SUFFIX
                if called.lower() in taken:
                    told = f"two columns of the result are called {called!r}; give one another name: column AS name"
                    raise self._scope.text.refuse(item.node, told)
                taken.add(called.lower())
                self._used.add(name)
                yield self._scope.qualified(name), called

    def _expanded(self, item: Item) -> list[tuple[Name, str]]:
        if item.column is not None:
            name = self._of_result(item.column)
            return [(name, item.name or name.column)]
        sides = (0, 1) if self._query.how not in _LEFT_ONLY else (0,)
        if item.of is not None:
            side = self._scope.side(item.of)
            if side not in sides:
                raise self._only_left(item.node)
            sides = (side,)
        return [(Name(side, column), column) for side in sides for column in self._scope.schemas[side].names]

    def _of_result(self, column: exp.Column) -> Name:
        """A column that rows of the result have."""
        left_only = self._query.how in _LEFT_ONLY
        if left_only and column.args.get("table") is None:  # the right table cannot be meant
            column = exp.column(column.this.copy(), exp.to_identifier(self._scope.refs[0].alias))
        name = self._scope.resolve(column)
        if left_only and name.side == 1:
            raise self._only_left(column)
        return name

    def _only_left(self, node: exp.Expr) -> Exception:
        how, alias = self._query.how.replace("_", " ").upper(), self._scope.refs[0].alias
        return self._scope.text.refuse(node, f"a {how} JOIN gives columns of {alias} only")

    def _use(self, *conditions: exp.Expr, of_result: bool = False) -> None:
        for condition in conditions:
            for column in condition.find_all(exp.Column):
                self._used.add(self._of_result(column) if of_result else self._scope.resolve(column))

    def _field(self, column: exp.Column) -> pc.Expression:
        """A column in a WHERE."""
        return pc.field(self._scope.qualified(self._of_result(column)))

    def _input(self, side: int) -> Input:
        ref, table = self._scope.refs[side], self._tables[side]
        names = [Name(side, column) for column in table.schema.names]
        columns = tuple((name.column, self._scope.qualified(name)) for name in names if name in self._used)
        is_twice = self._tables[0].name == self._tables[1].name
        source = ref.alias if is_twice else table.name
        return Input(source, table, columns, self._scope.qualified(Name(side, table.time)))

    def _fields(self, side: int, one: Input) -> list[pa.Field]:
        schema = self._scope.schemas[side]
        return [schema.field(column).with_name(called).remove_metadata() for column, called in one.columns]

    # ---- the join

    def _condition(self, told: Conditions, pairs: pa.Schema) -> pc.Expression | None:
        """What pairs must fulfil besides keys and times."""
        scope = self._scope
        built: pc.Expression | None = None
        for node in told.rest:
            one = predicate(scope.text, node, lambda column: pc.field(scope.qualified(scope.resolve(column))), pairs)
            built = one if built is None else built & one
        return built

    def _join(
        self, told: Conditions, inputs: tuple[Input, Input], condition: pc.Expression | None
    ) -> Callable[[], JoinOperator]:
        how, bounds, scope = self._query.how, told.bounds, self._scope
        ttl = None if self._ttl is None else timedelta(microseconds=span_us(self._ttl))

        def make() -> JoinOperator:
            left, right = (
                Side(
                    scope.refs[side].alias,
                    pa.schema(self._fields(side, inputs[side])),
                    [scope.qualified(pair[side]) for pair in told.keys],
                    inputs[side].time,
                )
                for side in (0, 1)
            )
            if ttl is not None:
                return ExpiringJoin(left, right, ttl=ttl, how=how, condition=condition)
            assert bounds.lower_us is not None
            assert bounds.upper_us is not None
            if bounds.equal and bounds.lower_us == bounds.upper_us == 0:
                return InstantJoin(left, right, how=how, condition=condition)
            lower, upper = (timedelta(microseconds=us) for us in (bounds.lower_us, bounds.upper_us))
            return IntervalJoin(left, right, lower=lower, upper=upper, how=how, condition=condition)

        return make
