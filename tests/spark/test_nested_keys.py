"""Arrays, structs and spans as keys on Spark: what meets is what meets in Spark's own batch join of the same rows."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.key_streams import NEAR, Values, as_text, joined, ours, table, write
from tests.support.key_values import NANS_8

pytestmark = pytest.mark.spark
POINT = pa.struct([("x", pa.float64()), ("name", pa.string())])
WIDE_POINT = pa.struct([("x", pa.float64()), ("name", pa.string()), ("more", pa.list_(pa.int64()))])
NARROW_POINT = pa.struct([("x", pa.float32()), ("name", pa.string()), ("more", pa.list_(pa.int32()))])
KINDS: list[tuple[pa.DataType, list[Any], pa.DataType, list[Any]]] = [
    (pa.list_(pa.int64()), [[], [None], [1, None], [1, 2], None],
     pa.list_(pa.int64()), [[], [None], [1, None], [1, 3], None]),
    (pa.list_(pa.float64()), [[-0.0], [NANS_8[0]], [0.0, None], [], None], pa.list_(pa.float64()),
     [[0.0], [NANS_8[1]], [-0.0, None], [None], None]),
    (POINT, [{"x": -0.0, "name": None}, {"x": NANS_8[0], "name": ""}, {"x": None, "name": None}, {"x": 1.0}, None],
     POINT, [{"x": 0.0, "name": None}, {"x": NANS_8[1], "name": ""}, {"x": None, "name": None}, {"x": 2.0}, None]),
    (pa.list_(POINT), [[{"x": -0.0}], [None], [None, None], [], None],
     pa.list_(POINT), [[{"x": 0.0}], [None], [None, {"x": None}], [], None]),
    (pa.list_(pa.int32()), [[1], [2, None], [], [3], None], pa.list_(pa.int64()), [[1], [2, None], [], [2**40], None]),
    (NARROW_POINT, [{"x": 0.5, "more": [1]}, {"x": 0.1}, {"x": None}, {"more": [2]}, None],
     WIDE_POINT, [{"x": 0.5, "more": [1]}, {"x": 0.1}, {"x": None}, {"more": [2]}, None]),
    (pa.int64(), [0, 1, -1, 10**9, None], pa.int64(), [0, 1, -1, 10**9, None]),
    (pa.int32(), [0, 1, -1, 50, None], pa.int32(), [0, 1, -1, 50, None]),
]  # fmt: skip
SPANS = {
    **{f"{side}6": f"make_dt_interval(0, 0, 0, {side}6)" for side in "lr"},
    **{f"{side}7": f"make_ym_interval(0, {side}7)" for side in "lr"},
}


def sides() -> tuple[Values, Values]:
    left = [pa.array([*values[:-1], values[0], values[0], values[-1]], kind) for kind, values, _, _ in KINDS]
    right = [pa.array([*values[:-1], values[0], values[0], values[-1]], kind) for _, _, kind, values in KINDS]
    return left, right


def test_nested_keys_meet_as_in_spark_and_come_out_as_they_came(spark: SparkSession, tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    write(tmp_path, seed, sides(), rows=300)
    got = ours(spark, joined(spark, tmp_path, "inner", len(KINDS), made=SPANS), tmp_path)
    tables = [table(spark, tmp_path, side, made=SPANS).alias(side) for side in "lr"]
    keys = " and ".join(f"l{at} = r{at}" for at in range(len(KINDS)))
    expected = as_text(tables[0].join(tables[1], on=F.expr(f"{keys} and {NEAR}"), how="inner"))
    assert expected.total() > 100, "too few rows meet"
    assert got == expected, f"seed {seed}"
