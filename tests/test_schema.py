"""Sides: which schemas the engine takes, and what it says to the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from lsmstate import SchemaError, Side
from lsmstate.layout import is_payload_type
from lsmstate.schema import difference

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.string())])


def side(**changes: Any) -> Side:
    return Side(**{"name": "clicks", "schema": SCHEMA, "keys": ["k"], "time": "ts", **changes})


def with_column(kind: pa.DataType, name: str = "x") -> pa.Schema:
    return SCHEMA.append(pa.field(name, kind))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": ""}, "a side needs a name"),
    "name of another type": ({"name": 5}, "a side needs a name"),
    "no schema": ({"schema": {"k": "int"}}, "must be a pyarrow.Schema"),
    "no keys": ({"keys": []}, "at least one key"),
    "unknown key": ({"keys": ["nope"]}, "no column 'nope'; there are k, ts, v"),
    "key twice": ({"keys": ["k", "k"]}, "named twice"),
    "unknown time": ({"time": "when"}, "no column 'when'"),
    "key and time in one": ({"keys": ["ts"]}, "cannot be both key and time"),
    "repeated columns": ({"schema": pa.schema([*SCHEMA, *SCHEMA])}, "column names repeat"),
    "reserved name": ({"schema": with_column(pa.int64(), "probe_index")}, "taken by probe"),
    "key of a half float": ({"schema": with_column(pa.float16()), "keys": ["x"]}, "can be no key: cast it to float"),
    "key of nanoseconds": (
        {"schema": with_column(pa.timestamp("ns", "UTC")), "keys": ["x"]},
        r"'x' is timestamp\[ns, tz=UTC\], which can be no key: cast it to timestamp\[us, tz=UTC\]",
    ),
    "key of a map": (
        {"schema": with_column(pa.map_(pa.string(), pa.int8())), "keys": ["x"]},
        "maps cannot be compared; make it a list of structs",
    ),
    "key of a list of seconds": (
        {"schema": with_column(pa.list_(pa.struct([("t", pa.time32("s"))]))), "keys": ["x"]},
        r"its elements are struct<t: time32\[s\]>: its field 't' is time32\[s\]: cast it to time64\[us\]",
    ),
    "time in milliseconds": ({"schema": with_column(pa.timestamp("ms")), "time": "x"}, r"cast it to timestamp\('us'\)"),
    "time as text": ({"time": "v"}, "time 'v' is string; cast it"),
    "time as a date": ({"schema": with_column(pa.date32()), "time": "x"}, "cast it"),
    "negative retention": ({"retention": timedelta(-1)}, "retention of .* is out of range"),
    "bucket of nothing": ({"bucket": timedelta(0)}, "bucket of .* is out of range"),
    "endless retention": ({"retention": timedelta.max}, "out of range"),
    "retention as a number": ({"retention": 10}, "retention"),
    "retention as text": ({"retention": "10 minutes"}, "retention"),
    "bucket as a number": ({"bucket": 1.5}, "bucket"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_side_that_makes_no_sense_is_refused(case: str) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(SchemaError, match=message) as error:
        side(**changes)
    assert isinstance(error.value, ValueError)


UNSUPPORTED = [
    pa.dense_union([pa.field("a", pa.int64())]),
    pa.list_(pa.sparse_union([pa.field("a", pa.int64())])),
    pa.uuid(),
    pa.json_(),
    pa.map_(pa.string(), pa.bool8()),
]


@pytest.mark.parametrize("kind", UNSUPPORTED, ids=str)
def test_type_that_cannot_be_stored_is_refused_by_name(kind: pa.DataType) -> None:
    assert not is_payload_type(kind)
    with pytest.raises(SchemaError, match=r"column 'x' is .* which no side can hold .* or leave it out"):
        side(schema=with_column(kind))


ENCODED = {
    pa.dictionary(pa.int32(), pa.string()): pa.string(),
    pa.run_end_encoded(pa.int32(), pa.int64()): pa.int64(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.list_view(pa.int64()): pa.list_(pa.int64()),
    pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string_view())): pa.map_(pa.string(), pa.string()),
}


@pytest.mark.parametrize("kind", ENCODED, ids=str)
def test_side_of_an_encoded_type_has_the_plain_type_of_its_values(kind: pa.DataType) -> None:
    assert side(schema=with_column(kind)).schema.field("x").type == ENCODED[kind]


def test_single_key_may_be_given_by_name() -> None:
    assert tuple(side(keys="k").keys) == ("k",)


@pytest.mark.parametrize(
    ("given", "bucket_us"),
    [
        ({"retention": timedelta(seconds=160)}, 10_000_000),
        ({"retention": timedelta(seconds=1)}, 1_000_000),
        ({"retention": timedelta(0)}, 1_000_000),
        ({}, 3_600_000_000),
        ({"retention": timedelta(seconds=160), "bucket": timedelta(milliseconds=1)}, 1000),
    ],
)
def test_bucket_is_a_sixteenth_of_the_retention_unless_told(given: dict[str, Any], bucket_us: int) -> None:
    assert side(**given).bucket_us == bucket_us


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"retention": timedelta(minutes=7), "bucket": timedelta(microseconds=1)},
        {"keys": ["v", "k"], "name": 'quotes " and \u202e marks'},
        {"schema": with_column(pa.decimal128(38, 10)).with_metadata({"a": "b"})},
    ],
)
def test_description_of_a_side_reads_back_the_same(given: dict[str, Any]) -> None:
    one = side(**given)
    other = Side.parse(one.describe())
    assert difference(one, other) is None
    assert one.schema_id == other.schema_id


def test_schema_id_tells_schemas_apart() -> None:
    different = [
        side(),
        side(keys=["v"]),
        side(schema=with_column(pa.int64())),
        side(schema=with_column(pa.int32())),
        side(schema=SCHEMA.set(2, pa.field("v", pa.string(), nullable=False))),
        side(schema=pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.string())])),
    ]
    assert len({one.schema_id for one in different}) == len(different)
