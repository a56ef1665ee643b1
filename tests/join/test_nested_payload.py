"""Nested payload in join operators: sizes of rows, ties, rows alone."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsmstate import Side
from lsmstate.checkpoint import OperatorContext
from lsmstate.join import AsOfJoin, IntervalJoin
from lsmstate.join.row_sizes import row_bytes
from tests.support.random_values import ALL, array_of
from tests.support.states import US

LISTS = pa.list_(pa.struct([("t", pa.string())]))


def rows_of(values: pa.Array, times: list[int]) -> pa.RecordBatch:
    keys = pa.array([1] * len(times), pa.int64())
    return pa.RecordBatch.from_arrays([keys, pa.array(times, pa.int64()), values], names=["k", "ts", "v"])


def sides_of(kind: pa.DataType) -> list[Side]:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", kind)])
    return [Side(name, schema, ["k"], "ts") for name in ("left", "right")]


def test_sizes_of_rows_count_what_lies_inside_of_them() -> None:
    values = pa.array([None, [], [{"t": "x" * 1000}, None], [{"t": "yy"}], None], LISTS)
    for start in range(5):
        sizes = row_bytes(pa.RecordBatch.from_arrays([values.slice(start)], names=["v"])).tolist()
        assert sizes == [4, 4, 4 + 2 * 5 + 1000, 4 + 5 + 2, 4][start:]


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_sizes_of_rows_of_every_type_do_not_depend_on_how_they_are_cut(kind: pa.DataType) -> None:
    rows = pa.RecordBatch.from_arrays([array_of(Random(3), kind, 30)], names=["v"])
    whole = row_bytes(rows).tolist()
    assert min(whole) > 0
    assert [row_bytes(rows.slice(at, 3)).tolist() for at in range(0, 30, 3)] == [
        whole[at : at + 3] for at in range(0, 30, 3)
    ]


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_left_join_gives_values_and_nulls_of_every_type(kind: pa.DataType, tmp_path: Path) -> None:
    left, right = (array_of(Random(seed), kind, 4) for seed in (1, 2))
    join = IntervalJoin(*sides_of(kind), lower=US * 0, upper=US * 0, how="full")
    join.on_start(OperatorContext(tmp_path))
    found = [*join.process_batch(0, rows_of(left, [1, 2, 3, 4])), *join.process_batch(1, rows_of(right, [3, 4, 5, 6]))]
    found += list(join.process_watermark(100))
    table = pa.Table.from_batches(found).sort_by("ts").combine_chunks()
    join.on_close()
    table.validate(full=True)
    assert table.select(["ts", "ts_right"]).to_pylist() == [
        *({"ts": ts, "ts_right": ts if ts > 2 else None} for ts in (1, 2, 3, 4)),
        *({"ts": None, "ts_right": ts} for ts in (5, 6)),
    ]
    assert table["v"].combine_chunks().equals(pa.concat_arrays([left, pa.nulls(2, kind)]))
    assert table["v_right"].combine_chunks().equals(pa.concat_arrays([pa.nulls(2, kind), right]))


def best_of(values: list[Any], folder: Path) -> Any:
    """Which of the values at one time an as-of join takes, that come one after the other."""
    join = AsOfJoin(*sides_of(LISTS), tolerance=US * 10)
    join.on_start(OperatorContext(folder))
    list(join.process_batch(0, rows_of(pa.array([[]], LISTS), [5])))
    for value in values:
        list(join.process_batch(1, rows_of(pa.array([value], LISTS), [4])))
    (found,) = join.process_watermark(100)
    join.on_close()
    return found["v_right"].to_pylist()


def test_as_of_ties_of_nested_values_break_by_content(tmp_path: Path) -> None:
    values: list[Any] = [[{"t": "a"}], [{"t": None}], [], [{"t": "a"}, None]]
    found = [best_of(list(order), tmp_path / str(number)) for number, order in enumerate(permutations(values))]
    assert all(best == found[0] for best in found)
