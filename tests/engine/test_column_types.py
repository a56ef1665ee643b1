"""Every supported type goes through the store: in memory, in a file, by scan, by probe, and from a slice."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsmstate import Side
from tests.support.column_values import VALUES
from tests.support.states import World

ROWS = 4


def table_of(kinds: list[pa.DataType], keys: list[pa.Array]) -> pa.RecordBatch:
    """A row for each value, one row of NULLs, and padding that a slice must leave out."""
    arrays = [pa.array([VALUES[kind][0], *VALUES[kind], None, VALUES[kind][1]], kind) for kind in kinds]
    names = [f"c{n}" for n in range(len(kinds))]
    padded = pa.RecordBatch.from_arrays([*keys, pa.array(range(ROWS + 3)), *arrays], names=["k", "ts", *names])
    return padded.slice(1, ROWS + 1)


KEYS: dict[str, pa.Array] = {
    "int64": pa.array([0, 3, 1, None, 2**63 - 1, -(2**63), 9]),
    "string": pa.array(["pad", "", "a", None, "x" * 100, "ü", "pad"]),
    "large_string": pa.array(["pad", "", "a", None, "x" * 100, "ü", "pad"], pa.large_string()),
}


@pytest.mark.parametrize("spilled", [False, True], ids=["in-memory", "in-a-file"])
@pytest.mark.parametrize("key", KEYS)
def test_every_supported_type_is_stored_as_it_came(key: str, spilled: bool) -> None:
    rows = table_of(list(VALUES), [KEYS[key]])
    kinds = [Side(name, rows.schema, ["k"], "ts") for name in ("left", "right")]
    with World(kinds) as world:
        store = world.open()
        store.append(0, rows)
        if spilled:
            store.snapshot_epoch(1)
        (scanned,) = store.scan(0, ordered=True)
        scanned.validate(full=True)
        assert scanned.equals(rows)
        (probed,) = store.probe(0, rows.select(["k", "ts"]), 0, 0)
        probed.validate(full=True)
        probed = probed.take(pc.sort_indices(probed["ts"]))
        alive = rows.filter(rows["k"].is_valid())
        assert probed.select(alive.schema.names).equals(alive)
        assert probed["probe_index"].to_pylist() == [0, 1, 3, 4]
        assert store.verify() == []
