"""Types of keys: what two different ones have in common is what Spark casts them to."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lsmstate import SchemaError, Side, StateStore
from lsmstate.join import IntervalJoin
from lsmstate.key_types import cast_to_meet, common_type, is_key_type
from tests.support.key_values import FLAT, NESTED

OF_SPARK = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,0)": pa.decimal128(38, 0),
    "decimal(38,18)": pa.decimal128(38, 18),
    "decimal(20,10)": pa.decimal128(20, 10),
    "interval day to second": pa.duration("us"),
    "array<int>": pa.list_(pa.int32()),
    "array<string>": pa.list_(pa.string()),
    "array<decimal(5,1)>": pa.list_(pa.decimal128(5, 1)),
    "struct<a:int,b:float>": pa.struct([("a", pa.int32()), ("b", pa.float32())]),
    "struct<x:bigint,y:double>": pa.struct([("x", pa.int64()), ("y", pa.float64())]),
    "struct<x:int,y:float>": pa.struct([("x", pa.int32()), ("y", pa.float32())]),
    "struct<a:bigint,b:float>": pa.struct([("a", pa.int64()), ("b", pa.float32())]),
    "struct<a:int>": pa.struct([("a", pa.int32())]),
}


def column(spark: SparkSession, kind: str) -> DataFrame:
    return spark.range(1).select(F.expr(f"cast(null as {kind})").alias("k"))


@pytest.mark.spark
def test_common_type_is_that_of_spark(spark: SparkSession) -> None:
    frames = {kind: column(spark, kind) for kind in OF_SPARK}
    met = 0
    for one, mine in OF_SPARK.items():
        for other, theirs in OF_SPARK.items():
            try:
                together = frames[one].unionAll(frames[other])
                expected = together.toArrow().schema.field("k").type
            except AnalysisException:
                expected = None
            found = common_type(mine, theirs)
            assert found == expected, f"{one} and {other}"
            met += expected is not None
    assert met > 150


@pytest.mark.parametrize(
    ("one", "other", "way"),
    [
        (pa.int32(), pa.int64(), "cast the first to int64"),
        (pa.int64(), pa.int32(), "cast the second to int64"),
        (pa.int64(), pa.decimal128(10, 2), "cast both to decimal128(22, 2)"),
        (pa.uint32(), pa.int32(), "cast both to int64"),
        (pa.uint64(), pa.int64(), "cast both to decimal128(20, 0)"),
        (pa.large_string(), pa.string(), "cast the first to string"),
        (pa.bool_(), pa.int64(), "Spark cannot compare them either; make them one type"),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), "cast the second to timestamp[us, tz=UTC]"),
    ],
    ids=str,
)
def test_the_cast_to_make_is_named(one: pa.DataType, other: pa.DataType, way: str) -> None:
    assert cast_to_meet(one, other) == way


def test_sides_of_different_key_types_are_told_the_cast_to_make(tmp_path: Path) -> None:
    schemas = [pa.schema([("k", kind), ("t", pa.string()), ("ts", pa.int64())]) for kind in (pa.int32(), pa.int64())]
    sides = [Side(name, schema, ["t", "k"], "ts") for name, schema in zip("ab", schemas, strict=True)]
    asking = pa.table([pa.array([1]), ["x"], pa.array([0])], schema=schemas[1])
    told = pytest.raises(SchemaError, match=r"string, int32 and string, int64; cast the first to int64\Z")
    with StateStore.open(tmp_path, sides) as store, told:
        store.probe(0, asking, by=1)
    with pytest.raises(
        SchemaError, match=r"'k' \(int32\) and 'k' \(int64\) cannot be compared; cast the first to int64$"
    ):
        IntervalJoin(*sides, lower=timedelta(0), upper=timedelta(1))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.time64("ns"), 5), (pa.timestamp("us", "UTC"), 2**60), (pa.date32(), 2**30), (pa.decimal128(9, 2), Decimal(1))],
    ids=str,
)
def test_the_heaviest_key_is_told_though_python_has_no_value_for_it(
    kind: pa.DataType, value: object, tmp_path: Path
) -> None:
    rows = pa.table([pa.array([value] * 3, kind), pa.array(range(3))], names=["k", "ts"])
    with StateStore.open(tmp_path, [Side("a", rows.schema, ["k"], "ts")]) as store:
        store.append(0, rows)
        with store.snapshot() as view:
            (((told,), count),) = view.heaviest(0)
    assert count == 3
    assert told == value or told == rows["k"][0]


def test_every_type_with_a_hash_can_be_a_key() -> None:
    assert all(is_key_type(kind) for kind in (*FLAT, *NESTED))
