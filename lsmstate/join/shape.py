"""The shape of a join: its sides, its kind, and what its rows look like.

A result row is made of the columns of a left row, then those of a right row; where a row comes alone, the others are
NULL. `picks` says which of them come out, and under which names: a key that has the same name on both sides comes once,
other names that clash get suffixes. Semi and anti joins give left columns only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from lsmstate.errors import SchemaError
from lsmstate.join.condition import Condition
from lsmstate.join.kinds import Kind
from lsmstate.join.late import check_names, late_side
from lsmstate.join.marks import marks_side
from lsmstate.key_types import cast_to_meet
from lsmstate.schema import Side

Columns = list[pa.Array]  # of left rows, then of right rows
LATE_SIDES = (2, 3)  # of a state: rows of left and right that could not take part
_MARKS = 4  # the first side of marks


@dataclass(frozen=True)
class Shape:
    """What joins need to know of their columns."""

    sides: tuple[Side, Side]
    kind: Kind
    condition: Condition | None = None
    suffixes: tuple[str, str] = ("", "_right")

    @cached_property
    def state_sides(self) -> tuple[Side, ...]:
        """The sides of the state: rows, rows that came too late, and marks where the kind needs them."""
        return state_sides(self.sides, self.kind)

    @cached_property
    def shared(self) -> tuple[tuple[int, int], ...]:
        """The key columns that come out once: their places left and right."""
        left, right = self.sides
        pairs = zip(left.keys, right.keys, left.key_fields, right.key_fields, strict=True)
        return tuple((one, other) for name, same, one, other in pairs if name == same)

    @cached_property
    def pair_columns(self) -> tuple[tuple[str, int], ...]:
        """Names and places of the columns of a pair."""
        left, right = (side.schema.names for side in self.sides)
        once = {left[one] for one, _ in self.shared}
        return output_columns(left, right, once, self.suffixes)

    @cached_property
    def output(self) -> pa.Schema:
        """The columns that come out."""
        fields = [*self.sides[0].schema, *self.sides[1].schema]
        return pa.schema([pa.field(name, fields[place].type) for name, place in self.output_columns])

    @cached_property
    def output_columns(self) -> tuple[tuple[str, int], ...]:
        """Names and places of the columns that come out."""
        if self.kind.pairs:
            return self.pair_columns
        return tuple((name, place) for place, name in enumerate(self.sides[0].schema.names))

    def result(self, columns: Columns) -> pa.RecordBatch:
        """Rows that come out."""
        return pa.RecordBatch.from_arrays([columns[place] for _, place in self.output_columns], schema=self.output)

    def pairs(self, columns: Columns) -> pa.RecordBatch:
        """Pairs, as a condition sees them."""
        picked = [columns[place] for _, place in self.pair_columns]
        return pa.RecordBatch.from_arrays(picked, names=[name for name, _ in self.pair_columns])

    def alone(self, side: int, rows: Sequence[pa.Array]) -> Columns:
        """Rows of a side without a partner."""
        count = len(rows[0])
        nulls: Columns = [pa.nulls(count, kind.type) for kind in self.sides[1 - side].schema]
        if side == 0:
            return [*rows, *nulls]
        for one, other in self.shared:
            nulls[one] = rows[other]
        return [*nulls, *rows]


def shape_of(
    left: Side, right: Side, kind: Kind, condition: Condition | None = None, suffixes: tuple[str, str] = ("", "_right")
) -> Shape:
    """The shape of a join of two sides, kept as long as the kind needs. Raises SchemaError if they cannot meet."""
    check_they_meet((left, right))
    check_names((left, right))
    sides = tuple(
        replace(side, retention=kind.retention(number), bucket=None) for number, side in enumerate((left, right))
    )
    shape = Shape((sides[0], sides[1]), kind, condition, suffixes)
    names = [name for name, _ in shape.pair_columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"the result would have {', '.join(twice)} twice; give other suffixes=, or rename a column")
    return shape


def state_sides(sides: tuple[Side, Side], kind: Kind) -> tuple[Side, ...]:
    """All sides of the state of a join: left, right, left_late, right_late, and marks where they are needed."""
    marked = [marks_side(side) for number, side in enumerate(sides) if kind.is_marked(number)]
    return (*sides, *map(late_side, sides), *marked)


def marks_number(kind: Kind, side: int) -> int | None:
    """The number of the side that holds the marks of a side; None if it has none."""
    if not kind.is_marked(side):
        return None
    return _MARKS + (1 if side == 1 and kind.is_marked(0) else 0)


def output_columns(
    left: Sequence[str], right: Sequence[str], once: set[str], suffixes: tuple[str, str]
) -> tuple[tuple[str, int], ...]:
    """Names of the columns of a pair, and their places among left columns followed by right ones.

    Names that differ only in the case of letters clash too, as they do in Spark.
    """
    clash = {name.lower() for name in left} & {name.lower() for name in right} - {name.lower() for name in once}
    found = []
    for place, name in enumerate([*left, *right]):
        is_right = place >= len(left)
        if not (is_right and name in once):
            found.append((name + suffixes[is_right] if name.lower() in clash else name, place))
    return tuple(found)


def check_they_meet(sides: tuple[Side, Side]) -> None:
    """Raises unless keys and times of both sides can be compared."""
    left, right = sides
    if len(left.keys) != len(right.keys):
        raise SchemaError(f"left has {len(left.keys)} key columns, right has {len(right.keys)}: name as many of each")
    pairs = [*zip(left.keys, right.keys, strict=True), (left.time, right.time)]
    for what, (one, other) in zip(["keys"] * len(left.keys) + ["times"], pairs, strict=True):
        kinds = left.schema.field(one).type, right.schema.field(other).type
        if kinds[0] != kinds[1]:
            way = cast_to_meet(*kinds) if what == "keys" else "cast one of them"
            raise SchemaError(f"the {what} {one!r} ({kinds[0]}) and {other!r} ({kinds[1]}) cannot be compared; {way}")
