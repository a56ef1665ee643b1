"""Rows for the state machine, each decoded from one number, so that a row costs one draw and shrinks to zero.

Few keys and few times, so that they meet: NULLs, duplicates, bucket borders, negative times and the ends of int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lsmstate import Side
from lsmstate.keys import TS_MAX, TS_MIN
from tests.support.states import US, Row, batch

BUCKET_US = 10
TIMES = (0, 1, 2, 9, 10, 11, 20, 35, -1, -10, -11, 2_000_000, TS_MAX, TS_MIN, TS_MAX - 1, TS_MIN + 1)
INTS = (1, 2, None, -1, TS_MAX)
WORDS = ("a", "", None, "b", "a long key of more than thirty-two bytes, with ümläuts")
VALUES: dict[pa.DataType, tuple[Any, ...]] = {
    pa.int64(): INTS,
    pa.string(): ("x", None, "", "y" * 70),
    pa.bool_(): (True, False, None),
    pa.binary(): (b"", None, b"\0\xff", b"z" * 20),
}
CODE_MAX = len(TIMES) * len(INTS) * len(WORDS) * 12 - 1

_KEYED_BY_INT = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
_KEYED_BY_WORD = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("flag", pa.bool_()), ("w", pa.string())])
_KEYED_BY_BOTH = pa.schema([("k", pa.int64()), ("raw", pa.binary()), ("w", pa.string()), ("ts", pa.timestamp("us"))])
SHAPES: tuple[tuple[pa.Schema, tuple[str, ...]], ...] = (
    (_KEYED_BY_INT, ("k",)),
    (_KEYED_BY_WORD, ("w",)),
    (_KEYED_BY_BOTH, ("w", "k")),
)


def make_sides(shape: int, retentions: Sequence[int | None]) -> list[Side]:
    """A side for each retention (in microseconds), keyed alike."""
    schema, keys = SHAPES[shape]
    return [
        Side(f"side{n}", schema, keys, "ts", None if kept is None else kept * US, BUCKET_US * US)
        for n, kept in enumerate(retentions)
    ]


def decode(kind: Side, code: int) -> Row:
    """The row of a number."""
    row = []
    for field in kind.schema:
        pool = TIMES if field.name == kind.time else WORDS if field.name == "w" else VALUES[field.type]
        code, at = divmod(code, len(pool))
        row.append(pool[at])
    return tuple(row)


def hot_rows(kind: Side, code: int, count: int) -> list[Row]:
    """Many rows of one key, at all times."""
    at = kind.schema.get_field_index(kind.time)
    row = decode(kind, code)
    return [(*row[:at], TIMES[n % len(TIMES)], *row[at + 1 :]) for n in range(count)]


@dataclass(frozen=True)
class Drawn:
    """Rows, and the Arrow form in which the store gets them."""

    rows: list[Row]
    given: pa.RecordBatch | pa.Table


def draw_rows(kind: Side, codes: Sequence[int], form: str) -> Drawn:
    """The rows of some numbers as a batch, a slice of a larger batch, or a table in chunks."""
    rows = [decode(kind, code) for code in codes]
    if form == "sliced":
        padded = batch(decode(kind, 7), *rows, decode(kind, 1), schema=kind.schema)
        return Drawn(rows, padded.slice(1, len(rows)))
    if form == "chunked":
        half = len(rows) // 2
        parts = [batch(*part, schema=kind.schema) for part in (rows[:half], [], rows[half:])]
        return Drawn(rows, pa.Table.from_batches(parts))
    return Drawn(rows, batch(*rows, schema=kind.schema))
