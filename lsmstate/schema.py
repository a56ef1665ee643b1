"""A side of a join: its columns, its key, its time, and how long its rows live.

Owns the rules for which schemas the engine takes, and the check of every batch against them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import xxhash

from lsmstate.encodings import plain_schema
from lsmstate.errors import SchemaError
from lsmstate.key_types import is_key_type, way_out
from lsmstate.layout import DEPTH_MAX, VALUE_BYTES_MAX, Layout, is_payload_type, layout_of, value_bytes

PROBE_INDEX = "probe_index"
ROW_ID = "__row_id"
_BUCKETS_PER_RETENTION = 16
_MIN_BUCKET = timedelta(seconds=1)
_DEFAULT_BUCKET = timedelta(hours=1)
_US = timedelta(microseconds=1)
_MAX_SPAN_US = 1 << 62


@dataclass(frozen=True)
class Side:
    """One input of a join.

    name: for people; schema: the columns, encoded ones (dictionaries, run ends, views) as the plain types of their
    values; keys: the columns that must be equal; time: the event time, a timestamp in microseconds (with or without
    zone) or an int64 of microseconds; retention: rows with `ts <= watermark - retention` are retired, None keeps all;
    bucket: the width of a time bucket, retention / 16 unless told (an hour where there is no retention).
    """

    name: str
    schema: pa.Schema
    keys: Sequence[str]
    time: str
    retention: timedelta | None = None
    bucket: timedelta | None = None
    retention_us: int | None = field(init=False, repr=False)
    bucket_us: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"a side needs a name, not {self.name!r}")
        if not isinstance(self.schema, pa.Schema):
            raise SchemaError(f"side {self.name!r}: schema must be a pyarrow.Schema")
        keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "schema", plain_schema(self.schema))
        self._check_columns()
        for label, span in (("retention", self.retention), ("bucket", self.bucket)):
            if span is not None and not isinstance(span, timedelta):
                raise SchemaError(f"side {self.name!r}: {label} must be a timedelta, not {type(span).__name__}")
        bucket = self.bucket
        if bucket is None:
            bucket = _DEFAULT_BUCKET
            if self.retention is not None:
                bucket = max(self.retention / _BUCKETS_PER_RETENTION, _MIN_BUCKET)
        for label, span, least in (("retention", self.retention, 0), ("bucket", bucket, 1)):
            if span is not None and not least <= span // _US <= _MAX_SPAN_US:
                raise SchemaError(f"side {self.name!r}: {label} of {span} is out of range")
        retention_us = None if self.retention is None else self.retention // _US
        object.__setattr__(self, "retention_us", retention_us)
        object.__setattr__(self, "bucket_us", bucket // _US)

    def _check_columns(self) -> None:
        names = self.schema.names
        if len(set(names)) != len(names):
            raise SchemaError(f"side {self.name!r}: column names repeat: {', '.join(sorted(names))}")
        if not self.keys:
            raise SchemaError(f"side {self.name!r}: at least one key column is needed")
        for name in (*self.keys, self.time):
            if name not in names:
                raise SchemaError(f"side {self.name!r}: no column {name!r}; there are {', '.join(names)}")
        if len(set(self.keys)) != len(self.keys):
            raise SchemaError(f"side {self.name!r}: a key column is named twice")
        for taken in (PROBE_INDEX, ROW_ID):
            if taken in names:
                raise SchemaError(f"side {self.name!r}: the name {taken!r} is taken by probe(); rename the column")
        for name in self.keys:
            if name == self.time:
                raise SchemaError(f"side {self.name!r}: {name!r} cannot be both key and time; select it twice")
            kind = self.schema.field(name).type
            if not is_key_type(kind):
                raise SchemaError(f"side {self.name!r}: {name!r} is {kind}, which can be no key: {way_out(kind)}")
        if not is_time_type(self.schema.field(self.time).type):
            raise SchemaError(
                f"side {self.name!r}: time {self.time!r} is {self.schema.field(self.time).type}; "
                "cast it to timestamp('us') or to int64 microseconds"
            )
        for column in self.schema:
            if not is_payload_type(column.type):
                raise SchemaError(
                    f"side {self.name!r}: column {column.name!r} is {column.type}, which no side can hold "
                    "(an extension type, a union, an interval that pyarrow cannot show, or nested deeper than "
                    f"{DEPTH_MAX}); cast it, take its storage, or leave it out"
                )
            if value_bytes(column.type) > VALUE_BYTES_MAX:
                raise SchemaError(
                    f"side {self.name!r}: column {column.name!r} is {column.type}, and each value of it takes "
                    f"{value_bytes(column.type)} bytes, even a NULL; more than {VALUE_BYTES_MAX} are too many: "
                    "make it a list, or a binary of any length"
                )

    @cached_property
    def columns(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Names and types, without the cost of asking Arrow each time."""
        return tuple((field.name, field.type) for field in self.schema)

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """How the values of each column lie in memory."""
        return tuple(layout_of(field.type) for field in self.schema)

    @property
    def is_nested(self) -> bool:
        """Whether a column of it is a tree, which formats before nested columns do not know."""
        return any(layout.tree for layout in self.layouts)

    @cached_property
    def key_fields(self) -> tuple[int, ...]:
        """The places of the key columns."""
        return tuple(self.schema.get_field_index(name) for name in self.keys)

    @cached_property
    def schema_id(self) -> str:
        """Names the schema: equal for equal columns, keys and time."""
        told = repr([(f.name, _named(f.type), f.nullable) for f in self.schema]) + repr((tuple(self.keys), self.time))
        return str(xxhash.xxh3_64_hexdigest(told.encode()))

    def describe(self) -> dict[str, Any]:
        """As JSON: for the state's identity and the index of an SSTable."""
        return {
            "name": self.name,
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "keys": list(self.keys),
            "time": self.time,
            "retention_us": self.retention_us,
            "bucket_us": self.bucket_us,
        }

    @classmethod
    def parse(cls, told: dict[str, Any]) -> Side:
        """The side that `describe` told of. Raises KeyError, TypeError, ValueError or OverflowError if it is none."""
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told["schema"], validate=True)))
        except (OSError, EOFError, pa.ArrowException) as error:  # Arrow's own word for bytes that are no message
            raise ValueError("an unreadable schema") from error
        retention = told["retention_us"]
        return cls(
            str(told["name"]),
            schema,
            [str(k) for k in told["keys"]],
            str(told["time"]),
            None if retention is None else timedelta(microseconds=retention),
            timedelta(microseconds=told["bucket_us"]),
        )


def _named(kind: pa.DataType) -> object:
    """Names a type: the text of a nested one may be that of another, whose fields have odd names."""
    if not pt.is_nested(kind):
        return str(kind)
    fields = [kind.key_field, kind.item_field] if pt.is_map(kind) else [kind.field(n) for n in range(kind.num_fields)]
    size = kind.list_size if pt.is_fixed_size_list(kind) else None
    return type(kind).__name__, size, [(field.name, _named(field.type), field.nullable) for field in fields]


def is_time_type(kind: pa.DataType) -> bool:
    """Whether a column of this type can be the event time."""
    return bool(pt.is_int64(kind) or (pt.is_timestamp(kind) and kind.unit == "us"))


def difference(stored: Side, given: Side) -> str | None:
    """In words, what keeps a stored side from being opened as the given one; None if nothing does."""
    for label in ("name", "keys", "time", "retention_us", "bucket_us"):
        was, now = getattr(stored, label), getattr(given, label)
        if was != now:
            return f"{label} was {was!r} and is now {now!r}"
    if stored.schema.equals(given.schema):
        return None
    return columns_difference(stored.schema, given.schema)


def columns_difference(expected: pa.Schema, got: pa.Schema) -> str:
    """In words, how the columns of two schemas differ."""
    parts = [f"missing {name!r}" for name in expected.names if name not in got.names]
    parts += [f"unknown {name!r}" for name in got.names if name not in expected.names]
    for one in expected:
        if one.name in got.names:
            other = got.field(one.name)
            if other.type != one.type:
                parts.append(f"{one.name!r} is {other.type} instead of {one.type}")
            elif other.nullable != one.nullable:
                parts.append(f"{one.name!r} is {'' if other.nullable else 'not '}nullable")
    return "; ".join(parts) or "the order of columns"
