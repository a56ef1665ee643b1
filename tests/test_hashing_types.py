"""`hash_keys` of every type of key: against Spark itself, and against the rule of how a value is told in bytes."""

from __future__ import annotations

import random
import secrets
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lsmstate.hashing import hash_keys, tells_apart
from tests.support.key_values import FLAT, NESTED, random_key

ROWS = 10_000
UNKNOWN_TO_SPARK = (pa.time64("us"), pa.decimal256(70, 5), pa.list_(pa.null()))  # the last one to its Arrow input
UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
NARROW = {pa.decimal32(7, 2): pa.decimal128(7, 2), pa.decimal64(15, 3): pa.decimal128(15, 3)}
SAME_IN_SPARK = {
    **UNSIGNED,
    **NARROW,
    pa.binary(3): pa.binary(),
    pa.binary(40): pa.binary(),
    pa.list_(pa.string(), 2): pa.list_(pa.string()),
}


def of(value: bytes, seed: int = 42) -> int:
    return int(xxhash.xxh64_intdigest(value, seed=seed))


def as_spark_holds_it(column: pa.Array) -> pa.Array:
    kind = SAME_IN_SPARK.get(column.type)
    return column if kind is None else column.cast(kind)


@pytest.mark.spark
def test_hash_of_every_type_equals_spark(spark: SparkSession) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    kinds = [kind for kind in (*FLAT, *NESTED) if kind not in UNKNOWN_TO_SPARK]
    spark.conf.set("spark.sql.timeType.enabled", True)
    columns = [random_key(rng, kind, ROWS) for kind in kinds]
    names = [f"c{number}" for number in range(len(kinds))]
    given = [as_spark_holds_it(column) for column in columns]
    frame = spark.createDataFrame(pa.table([pa.array(range(ROWS)), *given], names=["n", *names]))
    pairs = [F.xxhash64(names[0], name).alias(f"after {name}") for name in names]
    told = frame.select("n", *(F.xxhash64(name).alias(name) for name in names), *pairs).toArrow().sort_by("n")
    for kind, name, column in zip(kinds, names, columns, strict=True):
        assert np.array_equal(hash_keys([column]), told[name].to_numpy().view(np.uint64)), kind
        after = told[f"after {name}"].to_numpy().view(np.uint64)
        assert np.array_equal(hash_keys([columns[0], column]), after), kind
    nothing, one = pa.array([[None]], pa.list_(pa.null())), pa.array([1], pa.int32())
    (told,) = spark.sql("select xxhash64(array(null), 1)").collect()
    assert hash_keys([nothing, one]).view(np.int64).tolist() == [told[0]]


@pytest.mark.parametrize("kind", [*FLAT, *NESTED], ids=str)
def test_a_slice_and_chunks_hash_as_their_own_rows(kind: pa.DataType) -> None:
    column = random_key(random.Random(5), kind, 40)
    whole = hash_keys([column])
    alone = [int(hash_keys([column.take([row])])[0]) for row in range(40)]
    assert whole.tolist() == alone
    assert np.array_equal(hash_keys([column.slice(7, 20)]), whole[7:27])
    assert np.array_equal(hash_keys([pa.chunked_array([column.slice(3, 5), column.slice(8, 30)])]), whole[3:38])
    assert hash_keys([column.slice(4, 0)]).tolist() == hash_keys([pa.array([], kind)]).tolist() == []
    assert hash_keys([pa.nulls(3, kind)]).tolist() == [42, 42, 42]


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (-2, pa.int8(), struct.pack("<i", -2)),
        (-2, pa.int16(), struct.pack("<i", -2)),
        (2**31 - 1, pa.int32(), struct.pack("<i", 2**31 - 1)),
        (255, pa.uint8(), struct.pack("<i", 255)),
        (2**32 - 1, pa.uint32(), struct.pack("<q", 2**32 - 1)),
        (2**64 - 1, pa.uint64(), b"\0" + b"\xff" * 8),
        (127, pa.uint64(), b"\x7f"),
        (True, pa.bool_(), struct.pack("<i", 1)),
        (-0.0, pa.float64(), bytes(8)),
        (float("nan"), pa.float32(), struct.pack("<I", 0x7FC00000)),
        (5, pa.time64("us"), struct.pack("<q", 5000)),
        (5, pa.time64("ns"), struct.pack("<q", 5)),
        (Decimal("-1.25"), pa.decimal128(18, 2), struct.pack("<q", -125)),
        (Decimal("-1.28"), pa.decimal128(19, 2), b"\x80"),
        (Decimal("1.28"), pa.decimal128(19, 2), b"\0\x80"),
        (Decimal(-(2**63)), pa.decimal256(50, 0), b"\x80" + bytes(7)),
        (b"abc", pa.binary(3), b"abc"),
        ([7, None], pa.list_(pa.int32()), struct.pack("<i", 7)),
        ({"a": None, "b": "x"}, pa.struct([("a", pa.int8()), ("b", pa.string())]), b"x"),
    ],
    ids=str,
)
def test_a_value_is_hashed_as_these_bytes(value: object, kind: pa.DataType, told: bytes) -> None:
    assert hash_keys([pa.array([value], kind)]).tolist() == [of(told)]


def test_what_lies_under_a_null_does_not_count() -> None:
    values = pa.array([1, 2, 3], pa.int32())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), values, mask=pa.array([True, False]))
    structs = pa.StructArray.from_arrays([values], names=["a"], mask=pa.array([True, False, False]))
    assert hash_keys([lists]).tolist() == [42, of(struct.pack("<i", 3))]
    assert hash_keys([structs]).tolist() == [42, of(struct.pack("<i", 2)), of(struct.pack("<i", 3))]


def test_one_long_list_among_many_is_hashed_right() -> None:
    column = pa.array([[1]] * 9000 + [list(range(300))] + [[]])
    seed = 42
    for number in range(300):
        seed = of(struct.pack("<q", number), seed)
    assert hash_keys([column])[-3:].tolist() == [of(struct.pack("<q", 1)), seed, 42]


@pytest.mark.parametrize(
    ("kind", "is_exact"),
    [
        *((kind, True) for kind in (pa.int8(), pa.int32(), pa.int64(), pa.uint32(), pa.bool_(), pa.date32())),
        *((kind, True) for kind in (pa.timestamp("us"), pa.duration("us"), pa.time64("ns"))),
        *((kind, False) for kind in (pa.float32(), pa.float64(), pa.uint64(), pa.decimal128(9, 2), pa.time64("us"))),
        *((kind, False) for kind in (pa.string(), pa.binary(), *NESTED)),
    ],
    ids=str,
)
def test_a_hash_tells_keys_apart_only_where_it_can_be_undone(kind: pa.DataType, is_exact: bool) -> None:
    column = random_key(random.Random(6), kind, 100).drop_null()
    hashes = hash_keys([column])
    assert tells_apart([column], hashes) == is_exact
    assert not tells_apart([column, column], hashes)
    assert not tells_apart([column], np.append(hashes, np.uint64(42)))  # the hash of NULL
    if is_exact:
        assert len(set(hashes.tolist())) == len(column.unique())


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.float16(), pa.date64(), pa.time32("ms"), pa.timestamp("ns"), pa.duration("s")),
        *(pa.map_(pa.int64(), pa.int64()), pa.month_day_nano_interval(), pa.list_(pa.map_(pa.string(), pa.string()))),
        *(pa.struct([("a", pa.float16())]), pa.dictionary(pa.int8(), pa.string()), pa.string_view()),
    ],
    ids=str,
)
def test_a_type_without_a_hash_of_spark_is_named_in_the_error(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="cannot hash a key column of type") as error:
        hash_keys([pa.array([1]), pa.nulls(1, kind)])
    assert str(kind) in str(error.value)
