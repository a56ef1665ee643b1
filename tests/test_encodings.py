"""Encodings: columns come in any way of writing, whole or sliced, and are stored as plain values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsmstate import Side, StateStore
from lsmstate.checkpoint import OperatorContext
from lsmstate.encodings import means, plain_type, plainly
from lsmstate.errors import SchemaError
from lsmstate.join import IntervalJoin
from tests.support.states import US, World

LONG = "long " * 20
TEXTS = ["a", "a", None, "b", LONG, None, "a"]
LISTS = [["x"], None, [LONG, None], [], ["y"], [None], ["x"]]
OUT_OF_ORDER = pa.ListViewArray.from_arrays(
    pa.array([2, 0, 1, 0, 3, 0, 0], pa.int32()), pa.array([1, 2, 2, 0, 0, 3, 1], pa.int32()), pa.array([1, 2, 3])
)
ENCODED: dict[str, pa.Array] = {
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0, 0, None, 1, 2, 2, 0], pa.int8()), pa.array(["a", LONG, None], pa.string_view())
    ),
    "dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0, 0, None, 1, 1, 0, 0]), pa.array([[1], None])),
    "run ends": pc.run_end_encode(pa.array(TEXTS)),
    "run ends of a dictionary": pa.RunEndEncodedArray.from_arrays(
        pa.array([3, 4, 7], pa.int16()), pa.array(["a", None, "b"]).dictionary_encode()
    ),
    "string view": pa.array(TEXTS, pa.string_view()),
    "binary view": pa.array([b"a", None, LONG.encode(), b"", None, b"b", b"c"], pa.binary_view()),
    "list view": pa.array(LISTS, pa.list_view(pa.string())),
    "list view out of order": OUT_OF_ORDER,
    "large list view of views": pa.array(LISTS, pa.large_list_view(pa.string_view())),
    "list of dictionaries": pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 3, 4, 4, 5, 5], pa.int32()), pa.array(["a", None, "b", "a", "c"]).dictionary_encode()
    ),
    "struct of views": pa.array([None if t is None else {"t": t} for t in TEXTS], pa.struct([("t", pa.string_view())])),
    "map of views": pa.array([None, [], *([(LONG, 1)],) * 5], pa.map_(pa.string_view(), pa.int8())),
    "fixed list of views": pa.array([None, *(["a", None],) * 3, *([LONG, "b"],) * 3], pa.list_(pa.string_view(), 2)),
    "list with another name": pa.array(LISTS, pa.list_(pa.field("element", pa.string()))),
}
encoded = pytest.mark.parametrize("name", ENCODED)


@encoded
def test_every_slice_of_an_encoded_column_has_its_plain_values(name: str) -> None:
    array = ENCODED[name]
    wanted = plain_type(array.type)
    for start in range(len(array) + 1):
        for count in range(len(array) - start + 1):
            part = array.slice(start, count)
            plain = plainly(part, wanted)
            plain.validate(full=True)
            assert plain.type == wanted
            assert plain.to_pylist() == part.to_pylist()


def schema_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", kind)])


def rows_of(array: pa.Array) -> pa.RecordBatch:
    numbers = pa.array(range(len(array)), pa.int64())
    return pa.RecordBatch.from_arrays([numbers, numbers, array], names=["k", "ts", "v"])


def values(store: StateStore) -> list[object]:
    return [value for part in store.scan(0, ordered=True) for value in part["v"].to_pylist()]


@pytest.mark.parametrize("durability", ["epoch", "wal"])
@encoded
def test_encoded_columns_are_taken_for_their_values(name: str, durability: str) -> None:
    array = ENCODED[name]
    side = Side("left", schema_of(array.type), ["k"], "ts", 1000 * US)
    assert side.schema.field("v").type == plain_type(array.type)
    with World([side, Side("right", schema_of(pa.int8()), ["k"], "ts")]) as world:
        store = world.open(durability=durability)
        rows = rows_of(array)
        store.append(0, rows.slice(0, 2))
        store.append(0, pa.Table.from_batches([rows.slice(2, 3), rows.slice(5)]))
        assert values(store) == array.to_pylist()
        if durability == "wal":
            assert values(world.open(durability="wal")) == array.to_pylist()
        else:
            store.snapshot_epoch(1)
            assert values(world.open(read_only=True)) == array.to_pylist()


@encoded
def test_joins_take_encoded_columns_and_give_plain_ones(name: str, tmp_path: Path) -> None:
    array = ENCODED[name]
    sides = [Side(side, schema_of(array.type), ["k"], "ts") for side in ("left", "right")]
    join = IntervalJoin(*sides, lower=US * 0, upper=US * 0, how="left")
    join.on_start(OperatorContext(tmp_path))
    found = [*join.process_batch(0, rows_of(array)), *join.process_batch(1, rows_of(array))]
    table = pa.Table.from_batches(found)
    join.on_close()
    assert len(table) == len(array)
    assert table["v"].to_pylist() == table["v_right"].to_pylist()
    assert table["v"].to_pylist() == [array.to_pylist()[row] for row in table["k"].to_pylist()]


def test_keys_that_are_encoded_meet_plain_ones() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("ts", pa.int64())])
    sides = [Side(name, schema, ["k"], "ts") for name in ("left", "right")]
    rows = pa.table({"k": pa.array(["a", "b", None]).dictionary_encode(), "ts": [1, 2, 3]})
    with World(sides) as world:
        store = world.open()
        store.append(0, rows)
        asking = pa.table({"k": pa.array(["b", "a"]), "ts": [0, 0]})
        (found,) = store.probe(0, asking, None, None)
        assert sorted(found["k"].to_pylist()) == ["a", "b"]


def test_columns_of_other_values_are_refused() -> None:
    side = Side("left", schema_of(pa.list_(pa.string())), ["k"], "ts")
    with World([side, replace(side, name="right")]) as world:
        store = world.open()
        for array in (pa.array([[1]]), pa.array([["a"]], pa.large_list(pa.string())), pa.array(["a"])):
            with pytest.raises(SchemaError, match="does not fit"):
                store.append(0, rows_of(array))


def test_dictionary_with_indices_beyond_its_values_is_refused() -> None:
    bad = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a"]), safe=False)
    side = Side("left", schema_of(pa.string()), ["k"], "ts")
    with World([side, replace(side, name="right")]) as world, pytest.raises(SchemaError, match="cannot be decoded"):
        world.open().append(0, rows_of(bad))


def test_types_differ_by_values_and_not_by_names_inside() -> None:
    loose = pa.map_(pa.string(), pa.field("v", pa.list_(pa.field("element", pa.int8(), nullable=False))))
    assert means(loose, pa.map_(pa.string(), pa.list_(pa.int8())))
    assert not means(loose, pa.map_(pa.string(), pa.list_(pa.int16())))
    assert not means(pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())]))
    assert not means(pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3))
