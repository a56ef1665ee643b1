"""Rows of a small keyed table, and what it holds."""

from __future__ import annotations

import pyarrow as pa

from lsmstate.checkpoint.tables.table_set import KeyedTable

SCHEMA = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64(), nullable=False), pa.field("w", pa.string())])
KEYS = pa.schema([("k", pa.string())])


def rows(*told: tuple[str, int]) -> pa.RecordBatch:
    """Rows by key and value."""
    keys, values = zip(*told, strict=True) if told else ((), ())
    columns = [
        pa.array(keys, pa.string()),
        pa.array(values, pa.int64()),
        pa.array([f"w{v}" for v in values], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def keys(*names: str | None) -> pa.RecordBatch:
    """Keys to ask for, or to delete."""
    return pa.RecordBatch.from_arrays([pa.array(names, pa.string())], schema=KEYS)


def held(table: KeyedTable) -> dict[str, int]:
    """All rows of a table; each key once."""
    found: dict[str, int] = {}
    for batch in table.items():
        assert batch.schema.equals(SCHEMA)
        for row in batch.to_pylist():
            assert row["k"] not in found
            assert row["w"] == f"w{row['v']}"
            found[row["k"]] = row["v"]
    return found


def got(table: KeyedTable, *names: str) -> dict[str, int]:
    """What `get` gives for some keys."""
    found = table.get(keys(*names))
    assert found.index.tolist() == sorted(found.index.tolist())
    assert [names[at] for at in found.index] == found.rows.column("k").to_pylist()
    assert found.rows.schema.equals(SCHEMA)
    return dict(zip(found.rows.column("k").to_pylist(), found.rows.column("v").to_pylist(), strict=True))
