"""A table that rows are read from: its options, and the columns that its files had when it was named."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from iopool import FileSystem
from lsmstate.checkpoint.connect.parquet_source import ParquetSource
from lsmstate.errors import LsmStateError
from lsmstate.schema import is_time_type
from lsmstate.sql.options import table_options
from lsmstate.sql.statements import CreateTable
from lsmstate.sql.text import Text


@dataclass(frozen=True)
class Table:
    """options: checked, with absolute paths."""

    name: str
    options: Mapping[str, str]
    schema: pa.Schema

    @property
    def time(self) -> str:
        """The column of its event time."""
        return self.options["time"]

    @property
    def follows(self) -> bool:
        """Whether more files may come."""
        return self.options.get("follow") == "true"

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        schema = base64.b64encode(self.schema.serialize()).decode()
        return {"options": dict(self.options), "schema": schema}

    @classmethod
    def parse(cls, name: str, told: Mapping[str, Any]) -> Table:
        """The table that `describe` told of."""
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told["schema"], validate=True)))
        return cls(name, {str(key): str(value) for key, value in told["options"].items()}, schema)


def table_of(text: Text, statement: CreateTable, fs: FileSystem) -> Table:
    """The table that a statement names. Raises SqlError if it has no files, or no column of its time."""
    options = table_options(text, statement.at, statement.options, fs)
    places = {option.name: option.at for option in statement.options}
    try:
        schema = ParquetSource(options["path"], fs=fs).schema
    except (LsmStateError, OSError) as error:
        told = "put a file there, the columns are those of the first one"
        raise text.refuse(places["path"], f"table {statement.name!r}: {error}; {told}") from None
    time = options["time"]
    if time not in schema.names:
        told = f"table {statement.name!r}: there is no column {time[:80]!r}; it has {', '.join(schema.names)}"
        raise text.refuse(places["time"], told)
    if not is_time_type(schema.field(time).type):
        told = f"the time {time!r} is {schema.field(time).type}; write it as timestamp('us'), or as int64 microseconds"
        raise text.refuse(places["time"], f"table {statement.name!r}: {told}")
    return Table(statement.name, options, schema)
