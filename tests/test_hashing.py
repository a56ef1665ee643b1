"""`hash_keys` against two oracles: the `xxhash` package for every shape of input, and Spark itself."""

import os
import random
import secrets
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lsmstate.hashing import hash_keys
from lsmstate.hashing.types import BATCH_ROWS

Value = int | str | None
INT64_EXTREMES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
STRING_TYPES = [pa.string(), pa.large_string()]

ints = st.none() | st.integers(-(2**63), 2**63 - 1)
strings = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
one_row = st.tuples(ints, strings, strings)


def expected(*columns: Sequence[Value]) -> list[int]:
    """Give the chained XXH64 of each row, one value at a time."""
    hashes = []
    for row in zip(*columns, strict=True):
        seed = 42
        for value in row:
            if isinstance(value, int):
                seed = xxhash.xxh64_intdigest(value.to_bytes(8, "little", signed=True), seed=seed)
            elif isinstance(value, str):
                seed = xxhash.xxh64_intdigest(value.encode(), seed=seed)
        hashes.append(seed)
    return hashes


def random_ints(rng: random.Random, count: int) -> list[int | None]:
    """Give int64 values of all magnitudes, the extremes first and a NULL now and then."""
    values = [rng.getrandbits(rng.randint(1, 64)) for _ in range(count - len(INT64_EXTREMES))]
    signed: list[int | None] = [v - 2**64 if v >= 2**63 else v for v in values]
    return INT64_EXTREMES + [None if rng.random() < 0.05 else v for v in signed]


def random_strings(rng: random.Random, count: int) -> list[str | None]:
    """Give strings of 0 to 100 characters of 1 to 4 bytes, and a NULL now and then."""
    alphabets = ["abcXYZ019 -_", "éßñø", "日本語€", "😀🚀𝄞", "a\x00\x7fé日😀"]
    return [
        None if rng.random() < 0.05 else "".join(rng.choices(rng.choice(alphabets), k=rng.randint(0, 100)))
        for _ in range(count)
    ]


@pytest.fixture
def rng() -> random.Random:
    """Give a generator whose seed is printed; LSMSTATE_TEST_SEED repeats a run."""
    seed = int(os.environ.get("LSMSTATE_TEST_SEED") or secrets.randbits(32))
    print(f"LSMSTATE_TEST_SEED={seed}")
    return random.Random(seed)


@given(st.lists(one_row, max_size=40), st.sampled_from(STRING_TYPES), st.data())
@settings(print_blob=True)
def test_hash_equals_xxh64_chained_over_columns(
    rows: list[tuple[Value, ...]], kind: pa.DataType, data: st.DataObject
) -> None:
    ids, names, tags = ([row[i] for row in rows] for i in range(3))
    chosen = data.draw(st.permutations([(ids, pa.int64()), (names, kind), (tags, pa.string())]))
    chosen = chosen[: data.draw(st.integers(1, 3))]
    got = hash_keys([pa.array(values, kind) for values, kind in chosen])
    assert got.dtype == np.uint64
    assert got.tolist() == expected(*(values for values, _ in chosen))


@given(st.lists(one_row, max_size=40), st.integers(0, 45), st.integers(0, 45), st.sampled_from(STRING_TYPES))
@settings(print_blob=True)
def test_slice_hashes_as_its_own_rows(rows: list[tuple[Value, ...]], start: int, size: int, kind: pa.DataType) -> None:
    ids, names = [row[0] for row in rows], [row[1] for row in rows]
    columns = [pa.array(ids, pa.int64()).slice(start, size), pa.array(names, kind).slice(start, size)]
    rows_in_slice = slice(start, start + size)
    assert hash_keys(columns).tolist() == expected(ids[rows_in_slice], names[rows_in_slice])


@given(st.lists(st.lists(one_row, max_size=5), max_size=6), st.data())
@settings(print_blob=True)
def test_chunking_does_not_change_the_hash(parts: list[list[tuple[Value, ...]]], data: st.DataObject) -> None:
    ids = pa.chunked_array([[row[0] for row in part] for part in parts], pa.int64())
    names = [row[1] for part in parts for row in part]
    cut = data.draw(st.integers(0, len(names)))
    halves = pa.chunked_array([names[:cut], names[cut:]], pa.string())
    assert hash_keys([ids, halves]).tolist() == expected(ids.to_pylist(), names)


@pytest.mark.parametrize("kind", STRING_TYPES, ids=str)
def test_every_length_up_to_70_bytes_is_hashed_right(kind: pa.DataType) -> None:
    text = "The quick brown fox jumps over the lazy dog, then it rests: 0123456789"
    values = [text[70 - length :] for length in range(71)]
    assert hash_keys([pa.array(values, kind)]).tolist() == expected(values)
    for value in values:  # alone, the string ends where the buffer ends
        assert hash_keys([pa.array([value], kind)]).tolist() == expected([value])


@pytest.mark.parametrize("kind", STRING_TYPES, ids=str)
def test_lengths_up_to_10_kb_mixed_in_many_batches_are_hashed_right(rng: random.Random, kind: pa.DataType) -> None:
    sizes = [rng.choice((0, 3, 18, 31, 32, 33, 64, rng.randint(0, 300))) for _ in range(3 * BATCH_ROWS + 5)]
    for row in rng.sample(range(len(sizes)), 20):
        sizes[row] = rng.randint(1_000, 10_240)
    values = [None if rng.random() < 0.02 else rng.randbytes(size // 2).hex() for size in sizes]
    seeds = random_ints(rng, len(values))
    assert hash_keys([pa.array(seeds), pa.array(values, kind)]).tolist() == expected(seeds, values)


def test_int64_extremes_are_hashed_as_eight_bytes() -> None:
    assert hash_keys([pa.array(INT64_EXTREMES)]).tolist() == expected(INT64_EXTREMES)


def test_null_leaves_the_hash_unchanged() -> None:
    nulls, values = pa.nulls(3, pa.string()), pa.array([1, None, 3])
    assert hash_keys([nulls]).tolist() == [42, 42, 42]
    assert hash_keys([nulls, values, nulls]).tolist() == hash_keys([values]).tolist()


def test_empty_string_changes_the_hash_unlike_null() -> None:
    assert hash_keys([pa.array(["", None])]).tolist() == [xxhash.xxh64_intdigest(b"", seed=42), 42]


def test_bytes_owned_by_a_null_do_not_count() -> None:
    offsets, data = np.array([0, 40, 80], np.int32), b"x" * 40 + b"y" * 40
    column = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(offsets), pa.py_buffer(data)])
    assert hash_keys([column]).tolist() == expected([None, "y" * 40])


@pytest.mark.parametrize("length", range(71))
def test_bytes_around_a_string_do_not_count(length: int) -> None:
    offsets, text = np.array([0, length], np.int32), "k" * length
    for around in (b"", b"\xff" * 40):
        whole = pa.py_buffer(around + text.encode() + around)
        data = whole.slice(len(around), length)
        column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), data])
        assert hash_keys([column]).tolist() == expected([text])


@pytest.mark.parametrize("kind", [pa.int64(), *STRING_TYPES], ids=str)
def test_no_rows_give_no_hashes(kind: pa.DataType) -> None:
    for column in (pa.array([], kind), pa.chunked_array([], kind), pa.array([None, None], kind).slice(1, 0)):
        got = hash_keys([column])
        assert got.dtype == np.uint64
        assert len(got) == 0


def test_hashing_does_not_change_its_input() -> None:
    column = pa.array([1, None, 3])
    hash_keys([column])
    assert column.to_pylist() == [1, None, 3]


def test_one_long_string_does_not_raise_memory() -> None:
    column = pa.array(["k" * 18] * 50_000 + ["k" * 10_240])
    tracemalloc.start()
    try:
        hashes = hash_keys([column])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes - hashes.nbytes < 4 * 2**20


def test_no_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        hash_keys([])


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differ in length: \[2, 1\]"):
        hash_keys([pa.array([1, 2]), pa.array([1])])


@pytest.mark.spark
@pytest.mark.parametrize("key", ["id", "name", "id, name", "name, id"])
def test_hash_equals_spark(spark: SparkSession, rng: random.Random, key: str) -> None:
    values: dict[str, list[Value]] = {
        "id": [*random_ints(rng, 10_000)],
        "name": [*random_strings(rng, 10_000)],
    }
    schema = StructType([StructField("id", LongType()), StructField("name", StringType())])
    frame = spark.createDataFrame(list(zip(values["id"], values["name"], strict=True)), schema)
    names = key.split(", ")
    from_spark = [row[0] for row in frame.select(F.xxhash64(*names)).collect()]
    kinds = {"id": pa.int64(), "name": pa.string()}
    got = hash_keys([pa.array(values[name], kinds[name]) for name in names])
    assert got.view(np.int64).tolist() == from_spark
