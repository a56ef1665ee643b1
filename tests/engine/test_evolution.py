"""Columns that change: old rows are read with the new columns, wherever they lie, and nothing is rewritten for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lsmstate import SchemaError, Side, StateStore
from lsmstate.engine.identity import read_identity
from lsmstate.manifest.codec import encode
from lsmstate.sstable.cache import FileCache
from tests.conftest import Figures
from tests.support.crash import crash_images
from tests.support.states import US, World

K, TS = pa.field("k", pa.int64()), pa.field("ts", pa.int64())


def side(*payload: tuple[str, pa.DataType]) -> Side:
    """A side with these payload columns."""
    return Side("s", pa.schema([K, TS, *(pa.field(name, kind) for name, kind in payload)]), ["k"], "ts", None, 10 * US)


OLD = side(("small", pa.int8()), ("wide", pa.float32()), ("word", pa.string()))
NEW = side(("word", pa.string()), ("small", pa.int64()), ("tags", pa.list_(pa.string())), ("wide", pa.float64()))
OLD_ROWS = [{"k": n, "ts": n * 7, "small": n, "wide": n / 4, "word": f"w{n}"} for n in range(40)]
AS_NEW = [{**row, "tags": None} for row in OLD_ROWS]
NEW_ROWS = [{"k": n, "ts": n * 7, "word": None, "small": 1 << 40, "tags": ["t"], "wide": 0.1} for n in range(40, 60)]


def put(store: StateStore, rows: list[dict[str, Any]]) -> None:
    store.append(0, pa.RecordBatch.from_pylist(rows, schema=store.sides[0].schema))


def rows_of(parts: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return sorted((row for part in parts for row in part.to_pylist()), key=lambda row: row["k"])


@pytest.fixture
def world() -> Iterator[World]:
    with World([OLD]) as world:
        store = world.open()
        put(store, OLD_ROWS)
        store.snapshot_epoch(1)
        store.close()
        yield world


def test_old_rows_are_read_with_the_new_columns_beside_new_rows(world: World) -> None:
    store = world.open(kinds=[NEW])
    assert rows_of(store.scan(0)) == AS_NEW
    put(store, NEW_ROWS)
    store.snapshot_epoch(2)
    assert rows_of(store.scan(0)) == AS_NEW + NEW_ROWS
    keys = pa.RecordBatch.from_pylist([{"k": row["k"], "ts": 0} for row in AS_NEW + NEW_ROWS], pa.schema([K, TS]))
    found = [{name: row[name] for name in NEW.schema.names} for row in rows_of(store.probe(0, keys, by=0))]
    assert found == AS_NEW + NEW_ROWS
    with store.at_epoch(1) as then:
        assert rows_of(then.scan(0)) == AS_NEW
    assert store.verify() == []


def test_columns_stay_changed_for_whoever_opens_without_naming_them(world: World) -> None:
    world.open(kinds=[NEW]).close()
    store = world.open(read_only=True)
    assert store.sides[0].schema == NEW.schema
    assert rows_of(store.scan(0)) == AS_NEW


def test_compaction_writes_the_new_columns(world: World) -> None:
    store = world.open(kinds=[NEW])
    put(store, NEW_ROWS)
    store.snapshot_epoch(2)
    store.compact(major=True)
    store.snapshot_epoch(3)
    assert rows_of(store.scan(0)) == AS_NEW + NEW_ROWS
    assert {table.sides[0].schema_id for table in tables(store)} == {NEW.schema_id}
    assert not any(run.is_adapted for table in tables(store) for run in table.runs)
    assert store.verify() == []


def tables(store: StateStore) -> list[Any]:
    core = store._core
    files = core.working.files.values()
    return [core.cache.get(core.fs, core.sst_directory, ref, core.sides_by_number) for ref in files]


def test_branch_has_the_new_columns(world: World) -> None:
    store = world.open(kinds=[NEW])
    store.branch(1, "/other")
    branched = world.open(path="/other", kinds=[NEW])
    assert rows_of(branched.scan(0)) == AS_NEW


def test_restore_goes_back_to_old_rows_under_the_new_columns(world: World) -> None:
    store = world.open(kinds=[NEW])
    put(store, NEW_ROWS)
    store.snapshot_epoch(2)
    store.restore(1)
    assert rows_of(store.scan(0)) == AS_NEW
    put(store, NEW_ROWS)
    assert rows_of(store.scan(0)) == AS_NEW + NEW_ROWS


def test_columns_may_change_again_and_a_column_that_comes_back_has_its_values(world: World) -> None:
    world.open(kinds=[side()]).close()
    back = world.open(kinds=[side(("word", pa.string()))])
    assert [row["word"] for row in rows_of(back.scan(0))] == [row["word"] for row in OLD_ROWS]


def test_column_that_comes_back_with_another_type_is_a_new_one(world: World) -> None:
    world.open(kinds=[side()]).close()
    back = world.open(kinds=[side(("word", pa.int64()))])
    assert {row["word"] for row in rows_of(back.scan(0))} == {None}
    assert back.verify() == []


def test_narrower_type_is_refused_and_nothing_is_written(world: World) -> None:
    world.open(kinds=[NEW]).close()
    before = world.fs.tree()
    with pytest.raises(SchemaError, match="'small' is int8 instead of int64: only whole numbers and floats may widen"):
        world.open(kinds=[OLD])
    assert world.fs.tree() == before


def test_read_only_handle_reads_new_columns_and_changes_nothing(world: World) -> None:
    before = world.fs.tree()
    with StateStore.open("/s", [NEW], fs=world.fs.spawn(), pool=world.pool, read_only=True) as store:
        assert rows_of(store.scan(0)) == AS_NEW
    assert world.fs.tree() == before


def test_merge_of_a_handle_with_other_columns_is_not_adopted(world: World) -> None:
    """Else a slow handle that does not know a column would take its values away."""
    wide = side(("small", pa.int8()), ("wide", pa.float32()), ("word", pa.string()), ("more", pa.int64()))
    first = world.open(kinds=[wide])
    put(first, [{**row, "k": row["k"] + 100, "more": 5} for row in OLD_ROWS])
    first.snapshot_epoch(2)
    first.close()
    slow = world.open(kinds=[OLD])
    slow._core.compactor.run(major=True)  # leaves a note, and adopts it in memory only
    again = world.open(kinds=[wide])
    again.snapshot_epoch(3)
    assert [row["more"] for row in rows_of(again.scan(0))] == [None] * 40 + [5] * 40


def test_a_process_that_has_a_file_open_reads_it_with_the_columns_of_each_handle(world: World) -> None:
    cache, fs = FileCache(), world.fs.spawn()
    for kind, rows in ((OLD, OLD_ROWS), (NEW, AS_NEW)):
        with StateStore.open("/s", [kind], fs=fs, pool=world.pool, cache=cache) as store:
            assert rows_of(store.scan(0)) == rows


def test_rows_in_a_log_keep_the_columns_until_an_epoch_holds_them() -> None:
    with World([OLD]) as world:
        store = world.open(durability="wal")
        put(store, OLD_ROWS)
        store.close()
        with pytest.raises(SchemaError, match="make an epoch"):
            world.open(kinds=[NEW], durability="wal")
        store = world.open(durability="wal")
        assert rows_of(store.scan(0)) == OLD_ROWS
        store.snapshot_epoch(1)
        store.close()
        changed = world.open(kinds=[NEW], durability="wal")
        put(changed, NEW_ROWS)
        changed.close()
        assert rows_of(world.open(kinds=[NEW], durability="wal").scan(0)) == AS_NEW + NEW_ROWS


def test_crash_at_any_moment_leaves_the_old_columns_or_the_new_ones_and_all_rows(figures: Figures) -> None:
    with World([OLD]) as world:
        store = world.open()
        put(store, OLD_ROWS)
        store.snapshot_epoch(1)
        store.close()
        begun = len(world.fs.journal)
        changed = world.open(kinds=[NEW])
        put(changed, NEW_ROWS)
        changed.snapshot_epoch(2)
        changed.close()
        rng = random.Random(7)
        images = [
            (at, image)
            for at in range(begun, len(world.fs.journal) + 1)
            for image in crash_images(world.fs, at, rng, 40)
        ]
        for at, image in images:
            with StateStore.open("/s", fs=image, pool=world.pool, read_only=True) as found:
                known = found.sides[0].schema
                assert known.equals(OLD.schema) or known.equals(NEW.schema)
                assert rows_of(found.scan(0)) == (OLD_ROWS if known.equals(OLD.schema) else expected(found))
            with StateStore.open("/s", [NEW], fs=image, pool=world.pool) as again:
                assert rows_of(again.scan(0)) == expected(again), f"after {at} entries of the journal"
                assert again.verify() == []
        figures.add("crash images while columns change", len(images))


def expected(store: StateStore) -> list[dict[str, Any]]:
    return AS_NEW + NEW_ROWS if store.epochs() == [1, 2] else AS_NEW


def test_wide_column_that_old_rows_lack_comes_in_batches_of_bounded_size() -> None:
    """A NULL of such a type takes as much as a value."""
    wide = side(("vector", pa.list_(pa.float64(), 4096)))
    with World([side()]) as world:
        store = world.open(kinds=[side()])
        rows = pa.RecordBatch.from_arrays([pa.array(range(5000)), pa.array(range(5000))], schema=side().schema)
        store.append(0, rows)
        store.snapshot_epoch(1)
        store.close()
        changed = world.open(kinds=[wide])
        sizes = [part.nbytes for part in changed.scan(0)]
        assert len(sizes) > 1
        assert max(sizes) < 80 << 20
        changed.compact(major=True)
        assert sum(part.num_rows for part in changed.scan(0)) == 5000
        assert changed.verify() == []


def test_type_whose_null_takes_too_much_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"each value of it takes 17179869176 bytes, even a NULL.*make it a list"):
        side(("bomb", pa.list_(pa.int64(), 2**31 - 1)))


def test_file_that_lacks_a_column_which_may_not_be_null_is_not_read_as_if_it_had_it(world: World) -> None:
    strict = Side("s", OLD.schema.append(pa.field("x", pa.int64(), nullable=False)), ["k"], "ts", None, 10 * US)
    body = {"store": read_identity(world.fs, "/s").store_id, "sides": [strict.describe()]}  # type: ignore[union-attr]
    forged = world.fs.create("/s/SIDES-000001")
    forged.write([encode("SIDES-000001", body)])
    forged.close()
    store = world.open(read_only=True)
    with pytest.raises(SchemaError, match="'x' was not written, and may not be NULL"):
        list(store.scan(0))
    assert store.verify()
