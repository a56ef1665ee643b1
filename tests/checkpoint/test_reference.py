"""Reference tables: rows are looked up, and table and source go back and on together."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsmstate.checkpoint.connect.parquet_source import ParquetSource
from lsmstate.checkpoint.connect.table_source import TableSource
from lsmstate.checkpoint.tables.reference import ReferenceTable
from lsmstate.checkpoint.tables.table_set import TableSet
from lsmstate.errors import CheckpointError, SchemaError, StoreClosedError

CHANGES = pa.table(
    {
        "user": ["ann", "bob", "ann", "cid", "bob", "bob"],
        "city": ["Ulm", "Bonn", "Köln", "Jena", None, "Trier"],
        "gone": [False, False, False, False, True, None],
    }
)


def changes(batch_rows: int = 1) -> TableSource:
    return TableSource(CHANGES, batch_rows)


def clicks(*users: str | None) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(len(users))), "user_id": pa.array(users, pa.string())})


def cities(reference: ReferenceTable, *users: str) -> list[str | None]:
    return reference.lookup(clicks(*users), on=["user_id"]).column("city").to_pylist()


def poll_rows(reference: ReferenceTable, count: int) -> None:
    """Takes in exactly so many rows, one by one."""
    source = reference.source
    for _ in range(count):
        batch = source.read()
        assert batch is not None
        reference._take(reference._opened(), batch)


def test_lookup_gives_the_latest_row_of_each_key(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        reference = ReferenceTable(changes(), ["user"], deleted="gone")
        reference.open(tables, "users")
        assert reference.lookup(clicks("ann"), on="user_id").to_pylist() == [{"id": 0, "user_id": "ann", "city": None}]
        poll_rows(reference, 5)
        batch = clicks("bob", "ann", None, "dan", "cid", "ann")
        left = reference.lookup(batch, on=["user_id"])
        assert left.schema == batch.schema.append(pa.field("city", pa.string()))
        assert left.column("city").to_pylist() == [None, "Köln", None, None, "Jena", "Köln"]
        inner = reference.lookup(batch, on=["user_id"], how="inner")
        assert inner.column("id").to_pylist() == [1, 4, 5]
        assert inner.column("city").to_pylist() == ["Köln", "Jena", "Köln"]
        assert reference.lookup(batch.slice(0, 0), on=["user_id"]).num_rows == 0
        assert not reference.ended
        assert reference.poll() == 1
        assert cities(reference, "bob") == ["Trier"]
        assert reference.poll() == 0
        assert reference.ended


def test_names_that_clash_get_a_suffix(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        reference = ReferenceTable(TableSource(CHANGES.drop_columns("gone")), "user")
        reference.open(tables, "users")
        reference.poll()
        batch = pa.record_batch({"user": ["ann"], "city": ["Rom"]})
        assert reference.lookup(batch).to_pylist() == [{"user": "ann", "city": "Rom", "city_right": "Köln"}]
        assert reference.lookup(batch, suffix="_of_user").schema.names[-1] == "city_of_user"
        with pytest.raises(SchemaError, match="suffix"):
            reference.lookup(batch, suffix="")
        for bad in (clicks("ann"), batch.rename_columns(["user", "user"])):
            with pytest.raises(SchemaError, match="no column"):
                reference.lookup(bad)
        with pytest.raises(SchemaError):
            reference.lookup(batch, on=["user", "city"])
        with pytest.raises(ValueError, match="how"):
            reference.lookup(batch, how="full")
        with pytest.raises(SchemaError, match="does not fit"):
            reference.lookup(pa.record_batch({"user": pa.array([1])}))


def test_poll_is_bounded(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        many = pa.table({"user": [f"u{n}" for n in range(100)]})
        reference = ReferenceTable(TableSource(many, 1), ["user"])
        reference.open(tables, "users")
        taken = [reference.poll() for _ in range(8)]
        assert sum(taken) == 100
        assert max(taken) < 20


@pytest.mark.parametrize("taken", range(7))
def test_table_and_offsets_are_restored_together(taken: int, tmp_path: Path) -> None:
    """The source is read further, then the process dies; whether the commit had come makes no difference."""
    for is_committed in (True, False):
        path = tmp_path / str(is_committed)
        with TableSet(path) as tables:
            reference = ReferenceTable(changes(), ["user"], deleted="gone")
            reference.open(tables, "users")
            poll_rows(reference, taken)
            before = cities(reference, "ann", "bob", "cid")
            candidate = reference.prepare(1)
            told = reference.checkpoint()
            assert told.candidate == candidate
            assert told.path == tables.path_of("users")
            assert told.offsets == ({"rows": str(taken)} if taken else {})
            if is_committed:
                reference.commit(1)
            reference.poll()
        with TableSet(path, safe_epoch=1, candidates={"users": candidate}) as tables:
            again = ReferenceTable(changes(), ["user"], deleted="gone")
            again.open(tables, "users", told.offsets)
            assert cities(again, "ann", "bob", "cid") == before
            assert again.poll() == 6 - taken
            assert cities(again, "ann", "bob", "cid") == ["Köln", "Trier", "Jena"]


def test_aborted_epoch_loses_no_change(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        reference = ReferenceTable(changes(), ["user"], deleted="gone")
        reference.open(tables, "users")
        poll_rows(reference, 2)
        reference.prepare(1)
        reference.abort(1)
        poll_rows(reference, 1)
        reference.prepare(1)
        reference.commit(1)
    with TableSet(tmp_path, safe_epoch=1) as tables:
        again = ReferenceTable(changes(), ["user"], deleted="gone")
        again.open(tables, "users", {"rows": "3"})
        assert cities(again, "ann", "bob", "cid") == ["Köln", "Bonn", None]


def test_changes_that_could_not_be_taken_in_come_again(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        bad = pa.table({"user": ["ann", None], "city": ["Ulm", "Bonn"]})
        reference = ReferenceTable(TableSource(bad, 1), ["user"])
        reference.open(tables, "users")
        for _ in range(2):
            with pytest.raises(SchemaError, match="NULL"):
                reference.poll()
        assert reference.checkpoint().offsets == {"rows": "1"}
        assert cities(reference, "ann") == ["Ulm"]


def test_offsets_of_another_checkpoint_are_refused(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        reference = ReferenceTable(changes(), ["user"], deleted="gone")
        reference.open(tables, "users")
        reference.poll()
        reference.prepare(1)
        reference.commit(1)
    with TableSet(tmp_path) as tables, pytest.raises(CheckpointError, match="different offsets"):
        ReferenceTable(changes(), ["user"], deleted="gone").open(tables, "users", {"rows": "2"})


def test_files_of_changes_are_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    schema = CHANGES.schema
    with TableSet(tmp_path / "state") as tables:
        source = ParquetSource(tmp_path / "in", follow=True, schema=schema)
        reference = ReferenceTable(source, ["user"], deleted="gone")
        reference.open(tables, "users")
        assert reference.poll() == 0
        for at in range(0, 6, 2):
            pq.write_table(CHANGES.slice(at, 2), tmp_path / "in" / f"{at}.parquet")
            assert reference.poll() == 2
        assert cities(reference, "ann", "bob", "cid") == ["Köln", "Trier", "Jena"]


def test_misuse_is_a_typed_error(tmp_path: Path) -> None:
    reference = ReferenceTable(changes(), ["user"], deleted="city")
    with pytest.raises(SchemaError, match="boolean"):
        _ = reference.schema
    with pytest.raises(StoreClosedError):
        reference.poll()
    with TableSet(tmp_path) as tables:
        reference = ReferenceTable(changes(), ["user"], deleted="gone")
        reference.open(tables, "users")
        reference.close()
        with pytest.raises(StoreClosedError):
            reference.lookup(clicks("ann"), on=["user_id"])
