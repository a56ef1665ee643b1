"""The file sink: rows of committed epochs are visible, once; all others are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsmstate.checkpoint.connect.file_sink import FileSink
from lsmstate.errors import EpochError, FencedError, NotAStateError, SchemaError, StoreClosedError
from tests.support.simfs import SimFileSystem

JOB = "job/out"


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64()), "word": pa.array([f"w{n}" for n in numbers])})


def visible(path: Path) -> list[int]:
    """What a reader of the directory sees."""
    files = sorted(path.glob("*.parquet"))
    return sorted(n for file in files for n in pq.read_table(file).column("n").to_pylist())


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[FileSink]:
    opened = FileSink(tmp_path / "out")
    opened.open(JOB, None)
    yield opened
    opened.close()


def test_rows_are_visible_after_commit_and_not_before(sink: FileSink, tmp_path: Path) -> None:
    sink.write(batch(1, 2))
    sink.write(batch(3))
    assert visible(tmp_path / "out") == []
    assert len(sink.pre_commit(1)["files"]) == 1
    sink.write(batch(4))  # of the next epoch
    assert visible(tmp_path / "out") == []
    sink.commit(1)
    sink.commit(1)
    assert visible(tmp_path / "out") == [1, 2, 3]
    sink.pre_commit(2)
    sink.commit(2)
    assert visible(tmp_path / "out") == [1, 2, 3, 4]


def test_pandas_duckdb_and_pyarrow_read_the_directory_as_it_is(sink: FileSink, tmp_path: Path) -> None:
    for epoch in (1, 2):
        sink.write(batch(epoch))
        sink.pre_commit(epoch)
        sink.commit(epoch)
    sink.write(batch(3))
    sink.pre_commit(3)  # staged, and not to be seen
    sink.write(batch(4))
    where = tmp_path / "out"
    assert sorted(pd.read_parquet(where)["n"]) == [1, 2]
    assert sorted(pq.read_table(where).column("n").to_pylist()) == [1, 2]
    for pattern in ("*.parquet", "**/*.parquet"):
        assert duckdb.sql(f"select sum(n), count(*) from '{where}/{pattern}'").fetchall() == [(3, 2)]


def test_empty_epoch_writes_no_file(sink: FileSink, tmp_path: Path) -> None:
    sink.write(batch().slice(0, 0))
    assert sink.pre_commit(1) == {"files": []}
    sink.commit(1)
    assert list((tmp_path / "out").glob("*.parquet")) == []


def test_rows_of_an_aborted_epoch_go_with_the_next_one(sink: FileSink, tmp_path: Path) -> None:
    sink.write(batch(1))
    sink.pre_commit(1)
    sink.abort(1)
    sink.abort(1)
    sink.write(batch(2))
    sink.pre_commit(1)  # the same epoch, tried again
    sink.abort(1)
    sink.write(batch(3))
    assert len(sink.pre_commit(2)["files"]) == 1
    sink.commit(2)
    assert visible(tmp_path / "out") == [1, 2, 3]
    (name,) = names(tmp_path / "out")  # one file: readers see all of an epoch, or nothing
    assert name.startswith("part-000000000002-")
    sink.write(batch(4))
    sink.pre_commit(3)
    sink.abort(3)
    sink.pre_commit(4)
    sink.commit(4)
    assert visible(tmp_path / "out") == [1, 2, 3, 4]


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("*.parquet"))


def test_rows_that_were_not_pre_committed_are_dropped_by_close(sink: FileSink, tmp_path: Path) -> None:
    sink.write(batch(1))
    sink.close()
    sink.close()
    assert [p.name for p in (tmp_path / "out" / "_lsmstate" / "drafts").iterdir()] == []
    sink.open(JOB, None)
    sink.pre_commit(1)
    sink.commit(1)
    assert visible(tmp_path / "out") == []


@pytest.mark.parametrize(("committed", "seen"), [(0, []), (None, []), (1, [1]), (5, [1])])
def test_open_rolls_forward_what_is_decided_and_back_what_is_not(
    sink: FileSink, tmp_path: Path, committed: int | None, seen: list[int]
) -> None:
    sink.write(batch(1))
    sink.pre_commit(1)
    sink.write(batch(2))
    sink.close()
    for _ in range(2):
        FileSink(tmp_path / "out").open(JOB, committed)
        assert visible(tmp_path / "out") == seen
    assert list((tmp_path / "out" / "_lsmstate" / "staged").iterdir()) == []
    assert list((tmp_path / "out" / "_lsmstate" / "drafts").iterdir()) == []


def test_restore_at_an_earlier_epoch_takes_later_ones_out_of_sight_and_keeps_their_files(
    sink: FileSink, tmp_path: Path
) -> None:
    for epoch in (1, 2, 3):
        sink.write(batch(epoch))
        sink.pre_commit(epoch)
        sink.commit(epoch)
    again = FileSink(tmp_path / "out")
    again.open(JOB, 1)
    assert visible(tmp_path / "out") == [1]
    again.write(batch(20))
    again.pre_commit(2)
    again.commit(2)
    assert visible(tmp_path / "out") == [1, 20]
    undone = sorted((tmp_path / "out" / "_lsmstate" / "undone").iterdir())
    assert [pq.read_table(pa.BufferReader(p.read_bytes())).column("n").to_pylist() for p in undone] == [[2], [3]]


def test_new_job_is_refused_where_another_has_published(sink: FileSink, tmp_path: Path) -> None:
    sink.write(batch(1))
    sink.pre_commit(1)
    sink.commit(1)
    sink.write(batch(2))
    sink.pre_commit(2)
    with pytest.raises(EpochError, match="catalog"):
        FileSink(tmp_path / "out").open(JOB, None)
    with pytest.raises(NotAStateError, match="belongs to"):
        FileSink(tmp_path / "out").open("another job", 1)
    sink.commit(2)  # nobody was fenced, nothing was dropped
    assert visible(tmp_path / "out") == [1, 2]


def test_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(NotAStateError, match=r"holiday\.jpg"):
        FileSink(tmp_path).open(JOB, None)
    with pytest.raises(NotAStateError, match="not a directory"):
        FileSink(tmp_path / "holiday.jpg").open(JOB, None)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_replaced_sink_is_fenced_and_publishes_nothing(sink: FileSink, tmp_path: Path) -> None:
    sink.write(batch(1))
    sink.pre_commit(1)
    new = FileSink(tmp_path / "out")
    new.open(JOB, None)
    with pytest.raises(FencedError):
        sink.commit(1)
    sink.write(batch(2))
    with pytest.raises(FencedError):
        sink.pre_commit(2)
    new.write(batch(3))
    new.pre_commit(1)
    new.commit(1)
    assert visible(tmp_path / "out") == [3]


def test_other_columns_are_refused_before_anything_is_changed(sink: FileSink, tmp_path: Path) -> None:
    sink.write(batch(1))
    wrong = pa.record_batch({"n": pa.array(["x"]), "word": pa.array(["y"])})
    for bad in (wrong, batch(1).select(["n"]), "rows", pa.Table.from_batches([batch(1)])):
        with pytest.raises(SchemaError):
            sink.write(bad)
    sink.pre_commit(1)
    sink.commit(1)
    again = FileSink(tmp_path / "out")
    again.open(JOB, 1)
    with pytest.raises(SchemaError, match="does not fit"):  # also after a restart
        again.write(wrong)
    assert visible(tmp_path / "out") == [1]


def test_first_batch_that_parquet_cannot_hold_is_refused(sink: FileSink, tmp_path: Path) -> None:
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    for bad in (pa.record_batch({"u": union}), twice, pa.record_batch({})):
        with pytest.raises(SchemaError):
            sink.write(bad)
    sink.write(batch(1))
    sink.pre_commit(1)
    sink.commit(1)
    assert visible(tmp_path / "out") == [1]


def test_misuse_raises_typed_errors(sink: FileSink, tmp_path: Path) -> None:
    closed = FileSink(tmp_path / "other")
    for call in (lambda: closed.write(batch(1)), lambda: closed.pre_commit(1), lambda: closed.commit(1)):
        with pytest.raises(StoreClosedError):
            call()
    with pytest.raises(EpochError, match="not pre-committed"):
        sink.commit(1)
    sink.pre_commit(2)
    with pytest.raises(EpochError, match="forward"):
        sink.pre_commit(2)
    sink.commit(2)
    for bad in (0, -1, True, "1", 2):
        with pytest.raises(EpochError):
            sink.pre_commit(bad)  # type: ignore[arg-type]
    with pytest.raises(EpochError):
        sink.open(JOB, -1)
    with pytest.raises(ValueError, match="format"):
        FileSink(tmp_path, format="csv")
    with pytest.raises(ValueError, match="name"):
        sink.open("", None)


def test_many_small_batches_become_one_row_group_and_slices_do_not_keep_their_parents(
    sink: FileSink, tmp_path: Path
) -> None:
    numbers = pa.record_batch({"n": pa.array(range(300_000)), "word": pa.array(["w"] * 300_000)})
    for at in range(0, 300_000, 1000):
        sink.write(numbers.slice(at, 1000))
        assert sum(part.get_total_buffer_size() for part in sink._draft._waiting) < 8 << 20
    sink.pre_commit(1)
    sink.commit(1)
    (name,) = names(tmp_path / "out")
    meta = pq.read_metadata(tmp_path / "out" / name)
    assert meta.num_rows == 300_000
    assert meta.num_row_groups <= 5
    assert visible(tmp_path / "out") == list(range(300_000))


def rows_on(fs: SimFileSystem) -> list[int]:
    """What a reader of the simulated directory sees."""
    files = [data for path, data in fs.tree().items() if path.startswith("/out/part-") and data is not None]
    return sorted(n for data in files for n in pq.read_table(pa.BufferReader(data)).column("n").to_pylist())
