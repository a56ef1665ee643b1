"""Tables of an operator through epochs and restarts: what was decided is there, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lsmstate import Side
from lsmstate.checkpoint.tables.table_set import TableSet
from lsmstate.errors import EpochError
from tests.support.keyed_rows import SCHEMA, held, rows


def test_reopened_tables_go_on_from_their_last_epoch(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        table.put(rows(("a", 1)))
        table.note = {"offsets": {"rows": "1"}}
        tables.prepare(1)
        table.put(rows(("a", 2)))  # of the next epoch
        tables.commit(1)
    with TableSet(tmp_path) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        assert held(table) == {"a": 1}
        assert table.note == {"offsets": {"rows": "1"}}
        table.put(rows(("a", 3)))
        assert held(table) == {"a": 3}


def test_epoch_that_was_decided_is_committed_when_opened_and_one_that_was_not_is_forgotten(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        table.put(rows(("a", 1)))
        first = tables.prepare(1)
        tables.commit(1)
        table.put(rows(("a", 2)))
        second = tables.prepare(2)
    with TableSet(tmp_path, safe_epoch=1, candidates=first) as tables:
        assert held(tables.keyed("users", SCHEMA, ["k"])) == {"a": 1}
    with TableSet(tmp_path, safe_epoch=2, candidates=second) as tables:
        assert held(tables.keyed("users", SCHEMA, ["k"])) == {"a": 2}
    with TableSet(tmp_path, safe_epoch=1, candidates=first) as tables:  # restored at an earlier epoch
        table = tables.keyed("users", SCHEMA, ["k"])
        assert held(table) == {"a": 1}
        table.put(rows(("b", 9)))
        again = tables.prepare(2)
        tables.commit(2)
    with TableSet(tmp_path, safe_epoch=2, candidates=again) as tables:
        assert held(tables.keyed("users", SCHEMA, ["k"])) == {"a": 1, "b": 9}
    with TableSet(tmp_path, safe_epoch=7) as tables, pytest.raises(EpochError, match="not prepared"):
        tables.keyed("users", SCHEMA, ["k"])
    with TableSet(tmp_path, safe_epoch=0) as tables, pytest.raises(EpochError, match="start"):
        tables.keyed("users", SCHEMA, ["k"])


def test_table_that_the_checkpoint_does_not_know_starts_empty(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        told = {}
        tables.keyed("users", SCHEMA, ["k"])
        for epoch in (1, 2, 3):
            told = tables.prepare(epoch)
            tables.commit(epoch)
        tables.keyed("late", SCHEMA, ["k"]).put(rows(("a", 1)))
        tables.prepare(4)  # never decided
    with TableSet(tmp_path, safe_epoch=3, candidates=told) as tables:
        tables.keyed("users", SCHEMA, ["k"])
        late = tables.keyed("late", SCHEMA, ["k"])
        assert held(late) == {}
        late.put(rows(("b", 2)))
        told = tables.prepare(4)
        tables.commit(4)
    with TableSet(tmp_path, safe_epoch=4, candidates=told) as tables:
        assert held(tables.keyed("late", SCHEMA, ["k"])) == {"b": 2}
    with TableSet(tmp_path, safe_epoch=3, candidates={}) as tables, pytest.raises(EpochError, match="knows nothing"):
        tables.keyed("late", SCHEMA, ["k"])


def test_table_that_was_skipped_is_opened_at_the_epoch_that_it_has(tmp_path: Path) -> None:
    with TableSet(tmp_path) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        table.put(rows(("a", 1)))
        tables.prepare(1)
        tables.commit(1)
        tables.commit(2)  # the operator's hook said that there is nothing to keep
        told = {name: state.lsm.candidate for name, state in tables.states("operators/x").items() if state.lsm}
    with TableSet(tmp_path, safe_epoch=2, candidates=told) as tables:
        table = tables.keyed("users", SCHEMA, ["k"])
        assert held(table) == {"a": 1}
        tables.prepare(3)
        tables.commit(3)


def test_states_tell_the_candidate_its_files_and_its_directory(tmp_path: Path) -> None:
    with TableSet(tmp_path / "job" / "operators" / "x") as tables:
        assert tables.states("operators/x") == {}
        table = tables.keyed("users", SCHEMA, ["k"])
        table.put(rows(("a", 1)))
        candidate = tables.prepare(1)["users"]
        lsm = tables.states("operators/x")["users"].lsm
        assert lsm is not None
        assert (lsm.candidate, lsm.directory) == (candidate, "operators/x/table-users")
        assert all((tmp_path / "job" / lsm.directory / "sst" / file.name).is_file() for file in lsm.files)
        assert len(lsm.files) == 1
        tables.abort(1)
        assert tables.states("operators/x") == {}


def test_prepare_of_all_tables_or_of_none(tables: TableSet, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tables.keyed("one", SCHEMA, ["k"]), tables.keyed("two", SCHEMA, ["k"])
    one.put(rows(("a", 1)))
    with monkeypatch.context() as patched:
        patched.setattr(other, "prepare", lambda epoch: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            tables.prepare(1)
    assert tables.candidates == {}
    assert set(tables.prepare(1)) == {"one", "two"}
    tables.commit(1)
    tables.commit(1)
    tables.abort(1)
    assert held(one) == {"a": 1}


def test_expiring_table_is_a_store_whose_rows_go_with_the_watermark(tmp_path: Path) -> None:
    side = Side("clicks", pa.schema([("k", pa.int64()), ("ts", pa.int64())]), ["k"], "ts", timedelta(seconds=1))
    with TableSet(tmp_path) as tables:
        store = tables.expiring("clicks", [side])
        store.append(0, pa.record_batch({"k": pa.array([1, 2]), "ts": pa.array([0, 5_000_000])}))
        store.advance_watermark(5_000_000)
        tables.prepare(1)
        tables.commit(1)
    with TableSet(tmp_path, safe_epoch=1) as tables:
        store = tables.expiring("clicks", [side])
        assert [row["k"] for batch in store.scan(0) for row in batch.to_pylist()] == [2]
