"""A source of parquet files in a directory, in the order of their names, row group by row group.

Its offsets name the file, the row group and the row that it has come to, and tell how the file looked: its size and a
digest of its footer. A file that has vanished or changed since, or that appeared before the place that was reached, is
an error: rows would be lost or doubled silently otherwise. So files have to appear whole and under later names, as
those of a `FileSink` do. Files whose names begin with `_` or `.` are not for readers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from iopool import FileSystem, LocalFileSystem
from lsmstate.checkpoint.connect.source import whole_number
from lsmstate.errors import CheckpointError, NotAStateError, SchemaError
from lsmstate.schema import columns_difference

_SUFFIX = ".parquet"
_TAIL_BYTES = 8  # the length of the footer, and the magic
_MAGIC = b"PAR1"


@dataclass(slots=True)
class _Open:
    """A file that is being read."""

    name: str
    size_bytes: int
    digest: str
    parquet: pq.ParquetFile


class ParquetSource:
    """The rows of the files of a directory. `follow`: more files may come, so it never ends by itself. `schema`: the
    columns, where the directory may still be empty; those of the first file unless told."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        follow: bool = False,
        schema: pa.Schema | None = None,
        batch_rows: int = 64 << 10,
        fs: FileSystem | None = None,
    ) -> None:
        if not isinstance(batch_rows, int) or isinstance(batch_rows, bool) or batch_rows < 1:
            raise ValueError(f"batch_rows must be a whole number of at least 1, not {batch_rows!r}")
        self._fs = fs or LocalFileSystem()
        self._path = self._fs.resolve(os.fspath(path))
        self._follow, self._batch_rows = follow, batch_rows
        self._schema = None if schema is None else schema.remove_metadata()
        self._forget()

    def _forget(self) -> None:
        self._file: _Open | None = None
        self._rows: Iterator[pa.RecordBatch] | None = None
        self._group = self._row = self._passed = 0
        self._ended = False

    def __repr__(self) -> str:
        return f"ParquetSource({self._path!r})"

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            listed = self._listed()
            if not listed:
                raise SchemaError(f"{self._path}: holds no parquet file to learn the columns from; give schema=")
            self._schema = self._opened(listed[0]).parquet.schema_arrow.remove_metadata()
        return self._schema

    @property
    def ended(self) -> bool:
        return self._ended

    def open(self, offsets: Mapping[str, str] | None) -> None:
        self._forget()
        if not offsets:
            return
        group, row, passed = (whole_number(repr(self), offsets, name) for name in ("row_group", "row", "passed"))
        name = offsets.get("file", "")
        if name not in self._listed():
            raise self._changed(name, "is not there any more")
        file = self._opened(name)
        if (str(file.size_bytes), file.digest) != (offsets.get("size"), offsets.get("digest")):
            raise self._changed(name, "has changed since")
        if group > file.parquet.num_row_groups:
            raise self._changed(name, f"has only {file.parquet.num_row_groups} row groups")
        self._check_columns(file)
        self._file, self._group, self._row, self._passed = file, group, row, passed

    def read(self) -> pa.RecordBatch | None:
        while True:
            if self._file is None or self._group >= self._file.parquet.num_row_groups:
                if not self._go_on():
                    self._ended = not self._follow
                    return None
                continue
            if self._rows is None:
                self._rows = self._group_rows(self._file, self._group, self._row)
            batch = self._next(self._file, self._rows)
            if batch is not None:
                self._row += batch.num_rows
                if self._row == self._file.parquet.metadata.row_group(self._group).num_rows:
                    self._group, self._row, self._rows = self._group + 1, 0, None
                return batch
            self._group, self._row, self._rows = self._group + 1, 0, None

    def offsets(self) -> dict[str, str]:
        if self._file is None:
            return {}
        return {
            "file": self._file.name,
            "row_group": str(self._group),
            "row": str(self._row),
            "size": str(self._file.size_bytes),
            "digest": self._file.digest,
            "passed": str(self._passed),
        }

    def close(self) -> None:
        self._file, self._rows = None, None

    # ---- inside

    def _listed(self) -> list[str]:
        try:
            listed = self._fs.list_dir(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise NotAStateError(f"{self._path}: is not a directory to read files from") from None
        return sorted(name for name in listed if name.endswith(_SUFFIX) and name[0] not in "._")

    def _go_on(self) -> bool:
        """Opens the next file; False if there is none."""
        listed, last = self._listed(), "" if self._file is None else self._file.name
        before = [name for name in listed if name < last]
        if len(before) > self._passed:
            raise CheckpointError(
                f"{self!r}: {len(before)} files have names before {last!r}, of which {self._passed} were read: files "
                "have to appear under later names; rename the new ones"
            )
        self._passed = len(before)  # old files may be removed
        later = [name for name in listed if name > last]
        if not later:
            return False
        file = self._opened(later[0])
        self._check_columns(file)
        self._passed = len(listed) - len(later)
        self._file, self._group, self._row, self._rows = file, 0, 0, None
        return True

    def _opened(self, name: str) -> _Open:
        path = f"{self._path}/{name}"
        try:
            view = self._fs.map(path)
        except FileNotFoundError:
            raise self._changed(name, "is not there any more") from None
        footer = int.from_bytes(view[-_TAIL_BYTES:-4], "little")
        if len(view) < _TAIL_BYTES or bytes(view[-4:]) != _MAGIC or footer > len(view) - _TAIL_BYTES:
            raise CheckpointError(f"{path}: is no whole parquet file; files have to appear under their name when whole")
        digest = str(xxhash.xxh3_64_hexdigest(view[-_TAIL_BYTES - footer :]))
        try:
            parquet = pq.ParquetFile(pa.BufferReader(pa.py_buffer(view)), page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(name, error) from None
        return _Open(name, len(view), digest, parquet)

    def _check_columns(self, file: _Open) -> None:
        found = file.parquet.schema_arrow.remove_metadata()
        if not found.equals(self.schema):
            told = columns_difference(self.schema, found)
            raise SchemaError(f"{self._path}/{file.name}: has other columns than the files before: {told}")

    def _group_rows(self, file: _Open, group: int, skipped: int) -> Iterator[pa.RecordBatch]:
        """The rows of a row group after the first few."""
        for batch in file.parquet.iter_batches(self._batch_rows, row_groups=[group], use_threads=False):
            if skipped < batch.num_rows:
                yield batch.slice(skipped).replace_schema_metadata(None)
            skipped = max(0, skipped - batch.num_rows)

    def _next(self, file: _Open, rows: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(rows, None)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(file.name, error) from None

    def _changed(self, name: str, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._path}/{name}: {what}, and the job has read a part of it; bring it back as it was, or restore the "
            "job at an epoch before it"
        )

    def _damaged(self, name: str, error: Exception) -> CheckpointError:
        return CheckpointError(f"{self._path}/{name}: cannot be read as parquet ({type(error).__name__}); replace it")
