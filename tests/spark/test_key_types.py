"""Keys of every type on Spark: what meets is what meets in Spark's own batch join of the same rows."""

from __future__ import annotations

import datetime
import secrets
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.key_streams import NEAR, Values, as_text, joined, ours, table, write
from tests.support.key_values import NANS_4, NANS_8

pytestmark = pytest.mark.spark
DAYS = [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
TIMES = [datetime.datetime.combine(day, datetime.time()) for day in DAYS]
SAME: dict[pa.DataType, list[Any]] = {
    pa.int8(): [0, -1, 127, -128],
    pa.int16(): [0, -1, 32767, -32768],
    pa.int32(): [0, -1, 2**31 - 1, -(2**31)],
    pa.int64(): [0, -1, 2**63 - 1, -(2**63)],
    pa.bool_(): [True, False, True, False],
    pa.decimal128(9, 2): [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999.99"), Decimal("0.01")],
    pa.decimal128(38, 10): [Decimal("0"), Decimal("-1.28"), Decimal(10**27), Decimal("1E-10")],
    pa.string(): ["", "a", "A", "日本" * 20],
    pa.binary(): [b"", b"\0", b"\xff", b"x" * 70],
    pa.date32(): DAYS,
    pa.timestamp("us", "UTC"): [0, -1, 10**15, -(10**15)],
    pa.timestamp("us"): [0, -1, 10**15, -(10**15)],
}
MIXED: list[tuple[pa.DataType, list[Any], pa.DataType, list[Any]]] = [
    (pa.int32(), [0, -1, 7, 2**31 - 1], pa.float64(), [-0.0, -1.0, 7.0, 2.0**31 - 1]),
    (pa.int64(), [0, -1, 2**53 + 1, 2**63 - 1], pa.float64(), [0.0, -1.0, 2.0**53, 2.0**63]),
    (pa.int64(), [0, -1, 7, 2**63 - 1], pa.decimal128(10, 2), [Decimal(n) for n in ("0", "-1", "7.00", "7.01")]),
    (pa.float32(), [0.1, -0.0, 1.5, np.nan], pa.float64(), [float(np.float32(0.1)), 0.0, 1.5, NANS_8[1]]),
    (pa.decimal128(5, 1), [Decimal("0.5"), Decimal("1.0"), None, Decimal("-3")], pa.float64(), [0.5, 1.0, 2.0, -3.0]),
    (pa.decimal128(9, 2), [Decimal("1.50"), Decimal(0), Decimal("1.51"), None], pa.decimal128(20, 4),
     [Decimal("1.5"), Decimal(0), Decimal("1.5101"), Decimal(1)]),
    (pa.string(), ["1", "-0", " 7 ", "+9"], pa.int32(), [1, 0, 7, 9]),
    (pa.string(), ["1.50", "NaN", "-0.0", "1e3"], pa.float64(), [1.5, np.nan, 0.0, 1000.0]),
    (pa.string(), ["a", "ü", "", "b"], pa.binary(), [b"a", "ü".encode(), b"", b"\xff"]),
    (pa.string(), ["2024-02-29", "1969-12-31", "2000-01-01", None], pa.date32(), DAYS),
    (pa.date32(), DAYS, pa.timestamp("us", "UTC"), TIMES),
    (pa.timestamp("us"), TIMES, pa.timestamp("us", "UTC"), [*TIMES[:3], TIMES[0]]),
    (pa.int8(), [1, 2, 3, None], pa.int64(), [1, 2, 3, 2**40]),
]  # fmt: skip


def arrays(told: list[tuple[pa.DataType, list[Any]]], padding: int) -> Values:
    """The values, and as many places more where all are well, so that whole rows meet."""
    return [pa.array([*values, *[values[0]] * padding, None], kind) for kind, values in told]


def floats(nan: int, sign: float) -> Values:
    """Both kinds of floats, of which the two sides have other forms."""
    wide = np.array([1.5, NANS_8[nan], 0.0 * sign, np.inf, 1.5, 1.5, 0], np.float64)
    narrow = np.array([1.5, NANS_4[nan], 0.0 * sign, -np.inf, 1.5, 1.5, 0], np.float32)
    null = np.arange(7) == 6
    return [pa.array(wide, mask=null), pa.array(narrow, mask=null)]


def test_keys_of_one_type_meet_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    left, right = ([*arrays(list(SAME.items()), 2), *floats(side, 1 - 2 * side)] for side in (0, 1))
    seed = secrets.randbits(32)
    write(tmp_path, seed, (left, right))
    got = ours(spark, joined(spark, tmp_path, "left", len(left)), tmp_path)
    keys = " and ".join(f"l{at} = r{at}" for at in range(len(left)))
    tables = [table(spark, tmp_path, side).alias(side) for side in "lr"]
    together = tables[0].join(tables[1], on=_condition(keys), how="left")
    expected = as_text(together)
    assert sum(row[-1] is not None for row in expected.elements()) > 100, "too few rows meet"
    assert sum(row[-1] is None for row in expected.elements()) > 10, "too few rows are alone"
    assert got == expected, f"seed {seed}"


def test_keys_of_different_types_meet_as_in_spark_and_come_out_as_they_came(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = arrays([(kind, values) for kind, values, _, _ in MIXED], 2)
    right = arrays([(kind, values) for _, _, kind, values in MIXED], 2)
    seed = secrets.randbits(32)
    write(tmp_path, seed, (left, right), rows=300)
    frame = joined(spark, tmp_path, "inner", len(left))
    tables = [table(spark, tmp_path, side) for side in "lr"]
    kinds = dict(tables[0].dtypes) | dict(tables[1].dtypes)
    assert all(kind == kinds[name] for name, kind in frame.dtypes if name[1:].isdigit())
    got = ours(spark, frame, tmp_path)
    keys = " and ".join(f"l{at} = r{at}" for at in range(len(left)))
    expected = as_text(tables[0].alias("l").join(tables[1].alias("r"), on=_condition(keys), how="inner"))
    assert expected.total() > 100, "too few rows meet"
    assert got == expected, f"seed {seed}"


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_key_of_one_name_and_two_types_comes_out_once(how: str, spark: SparkSession, tmp_path: Path) -> None:
    numbers = pa.array([1, 2, 3, 4, None], pa.int32())
    halves = pa.array([1.0, 2.0, 3.5, 4.0, None], pa.float64())
    write(tmp_path, 5, ([numbers], [halves]), rows=40)
    frame = joined(spark, tmp_path, how, 1, shared=True)
    assert dict(frame.dtypes)["k0"] == ("int" if how == "inner" else "double")
    got = ours(spark, frame, tmp_path)
    tables = [table(spark, tmp_path, side, shared=True).alias(side) for side in "lr"]
    together = tables[0].join(tables[1], on=_condition("l.k0 = r.k0"), how=how)
    key = "l.k0" if how == "inner" else "coalesce(l.k0, r.k0) as k0"
    expected = as_text(together.selectExpr(key, "l.ts", "l.n", "r.ts as ts_right", "r.n as n_right"))
    assert sum(None not in row for row in expected.elements()) > 50
    assert got == expected


def _condition(keys: str) -> Any:
    return F.expr(f"{keys} and {NEAR}")
