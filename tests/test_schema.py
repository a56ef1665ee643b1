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
    "key of a float": (
        {"schema": with_column(pa.float64()), "keys": ["x"]},
        "key 'x' is double; keys are int64 or string",
    ),
    "key of an int32": ({"schema": with_column(pa.int32()), "keys": ["x"]}, "cast it"),
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
    pa.list_(pa.int64()),
    pa.large_list(pa.int64()),
    pa.list_(pa.int64(), 2),
    pa.struct([("a", pa.int64())]),
    pa.map_(pa.string(), pa.int64()),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dense_union([pa.field("a", pa.int64())]),
    pa.run_end_encoded(pa.int32(), pa.int64()),
    pa.null(),
    pa.binary(0),
    pa.string_view(),
    pa.binary_view(),
    pa.list_view(pa.int64()),
    pa.uuid(),
    pa.json_(),
]


@pytest.mark.parametrize("kind", UNSUPPORTED, ids=str)
def test_type_that_cannot_be_stored_is_refused_by_name(kind: pa.DataType) -> None:
    assert not is_payload_type(kind)
    with pytest.raises(
        SchemaError, match=r"column 'x' is .* not supported yet; cast it to a flat type, or leave it out"
    ):
        side(schema=with_column(kind))


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
