"""Sources: opened at any offsets that they gave, they give exactly what came after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsmstate.checkpoint.connect.file_sink import FileSink
from lsmstate.checkpoint.connect.parquet_source import ParquetSource
from lsmstate.checkpoint.connect.source import Source
from lsmstate.checkpoint.connect.table_source import TableSource
from lsmstate.errors import CheckpointError, NotAStateError, SchemaError

SCHEMA = pa.schema([("n", pa.int64())])


def table(first: int, end: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, end), pa.int64())})


def put(path: Path, first: int, end: int, *, group: int = 3) -> None:
    pq.write_table(table(first, end), path, row_group_size=group)


def everything(source: Source) -> list[int]:
    """All rows until there are none now."""
    rows = []
    while (batch := source.read()) is not None:
        assert batch.num_rows
        assert batch.schema.equals(source.schema)
        rows += batch.column("n").to_pylist()
    return rows


def table_source(tmp_path: Path) -> TableSource:
    chunks = [table(0, 4), table(4, 4), table(4, 5), table(5, 20)]
    return TableSource(pa.concat_tables(chunks), batch_rows=3)


def parquet_source(tmp_path: Path) -> ParquetSource:
    if not list(tmp_path.iterdir()):
        put(tmp_path / "a.parquet", 0, 8, group=5)
        put(tmp_path / "b.parquet", 0, 0)  # a file without rows
        put(tmp_path / "c.parquet", 8, 20)
        (tmp_path / "_started.parquet").write_bytes(b"not yet")
        (tmp_path / "notes.txt").write_bytes(b"for people")
    return ParquetSource(tmp_path, batch_rows=2)


@pytest.mark.parametrize("make", [table_source, parquet_source])
def test_source_goes_on_strictly_after_any_offsets_that_it_gave(make: Callable[[Path], Source], tmp_path: Path) -> None:
    source = make(tmp_path)
    source.open(None)
    rows, places = [], [(0, source.offsets())]
    while (batch := source.read()) is not None:
        rows += batch.column("n").to_pylist()
        places.append((len(rows), source.offsets()))
    assert rows == list(range(20))
    assert source.ended
    assert all(isinstance(k, str) and isinstance(v, str) for _, offsets in places for k, v in offsets.items())
    for count, offsets in places:
        again = make(tmp_path)
        again.open(offsets)
        assert not again.ended
        assert again.offsets() == offsets
        assert everything(again) == rows[count:]
        assert again.ended
        again.open(None)  # and once more from the beginning
        assert everything(again) == rows
        again.close()
        again.close()


def test_other_batch_size_goes_on_at_the_same_row(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", 0, 50, group=20)
    source = ParquetSource(tmp_path, batch_rows=7)
    source.open(None)
    first = source.read()
    assert first is not None
    for rows in (1, 5, 1000):
        again = ParquetSource(tmp_path, batch_rows=rows)
        again.open(source.offsets())
        assert everything(again) == list(range(7, 50))


def test_followed_directory_gives_files_that_appear_later(tmp_path: Path) -> None:
    source = ParquetSource(tmp_path, follow=True, schema=SCHEMA)
    source.open(None)
    assert source.read() is None
    assert source.offsets() == {}
    put(tmp_path / "a.parquet", 0, 5)
    assert everything(source) == [0, 1, 2, 3, 4]
    put(tmp_path / "b.parquet", 5, 7)
    assert everything(source) == [5, 6]
    assert not source.ended
    (tmp_path / "a.parquet").unlink()  # old files may be tidied up
    put(tmp_path / "c.parquet", 7, 8)
    assert everything(source) == [7]


def test_vanished_or_changed_file_is_an_error_on_replay(tmp_path: Path) -> None:
    source = parquet_source(tmp_path)
    source.open(None)
    source.read()
    offsets, file = source.offsets(), tmp_path / "a.parquet"
    before = file.read_bytes()
    put(file, 1, 9, group=5)
    with pytest.raises(CheckpointError, match=r"a\.parquet: has changed"):
        parquet_source(tmp_path).open(offsets)
    file.unlink()
    with pytest.raises(CheckpointError, match=r"a\.parquet: is not there"):
        parquet_source(tmp_path).open(offsets)
    file.write_bytes(before)
    again = parquet_source(tmp_path)
    again.open(offsets)
    assert everything(again) == list(range(2, 20))


def test_file_that_appears_before_the_place_that_was_reached_is_an_error(tmp_path: Path) -> None:
    source = parquet_source(tmp_path)
    source.open(None)
    everything(source)
    offsets = source.offsets()
    put(tmp_path / "aa.parquet", 100, 101)
    with pytest.raises(CheckpointError, match="later names"):
        source.read()
    again = parquet_source(tmp_path)
    again.open(offsets)
    with pytest.raises(CheckpointError, match="later names"):
        again.read()


def test_torn_and_damaged_files_are_an_error_that_names_them(tmp_path: Path) -> None:
    good = pa.BufferOutputStream()
    pq.write_table(table(0, 1000), good, write_page_checksum=True, compression="none", use_dictionary=False)
    data = good.getvalue().to_pybytes()
    bent = bytearray(data)
    bent[len(data) // 2] ^= 1
    for bad in (b"", b"PAR1", data[:-1], data[: len(data) // 2], b"x" * 100 + b"\xff\xff\xff\x7fPAR1", bytes(bent)):
        (tmp_path / "bad.parquet").write_bytes(bad)
        source = ParquetSource(tmp_path, schema=SCHEMA)
        source.open(None)
        with pytest.raises(CheckpointError, match=r"bad\.parquet"):
            everything(source)


def test_other_columns_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", 0, 2)
    pq.write_table(pa.table({"m": ["x"]}), tmp_path / "b.parquet")
    source = ParquetSource(tmp_path)
    source.open(None)
    assert source.read() is not None
    with pytest.raises(SchemaError, match=r"b\.parquet"):
        source.read()
    with pytest.raises(SchemaError, match=r"a\.parquet"):
        everything(ParquetSource(tmp_path, schema=pa.schema([("n", pa.string())])))


def test_links_are_not_followed_out_of_the_directory(tmp_path: Path) -> None:
    put(tmp_path / "secret.parquet", 0, 2)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").symlink_to(tmp_path / "secret.parquet")
    source = ParquetSource(tmp_path / "in")
    source.open(None)
    with pytest.raises(OSError, match=r"a\.parquet"):
        source.read()


def test_misuse_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(NotAStateError):
        everything(ParquetSource(tmp_path / "nowhere", schema=SCHEMA))
    with pytest.raises(SchemaError, match="schema="):
        _ = ParquetSource(tmp_path).schema
    for bad in ({"rows": "21"}, {"rows": "-1"}, {"rows": "x"}, {"file": "a"}):
        with pytest.raises(CheckpointError):
            table_source(tmp_path).open(bad)
    for offsets in ({"rows": "3"}, {"file": "../a.parquet", "row_group": "0", "row": "0", "passed": "0"}):
        with pytest.raises(CheckpointError):
            parquet_source(tmp_path).open(offsets)
    with pytest.raises(SchemaError):
        TableSource([1, 2])
    for make in (lambda: TableSource(table(0, 1), batch_rows=0), lambda: ParquetSource(tmp_path, batch_rows=0)):
        with pytest.raises(ValueError, match="batch_rows"):
            make()


def test_table_without_rows_ends_at_once() -> None:
    source = TableSource(table(0, 0).to_batches()[0] if table(0, 0).to_batches() else table(0, 0))
    source.open(None)
    assert source.read() is None
    assert source.ended


def test_output_of_a_file_sink_is_a_source(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out")
    sink.open("job/out", None)
    source = ParquetSource(tmp_path / "out", follow=True, schema=SCHEMA)
    source.open(None)
    for epoch in (1, 2):
        for batch in table(epoch * 10, epoch * 10 + 3).to_batches():
            sink.write(batch)
        sink.pre_commit(epoch)
        assert everything(source) == []
        sink.commit(epoch)
        assert everything(source) == [epoch * 10, epoch * 10 + 1, epoch * 10 + 2]
