"""A sink of parquet files in a directory that pandas, DuckDB and Spark read as it is.

    sink = FileSink("out/clicks")
    sink.open("job/clicks", None); sink.write(batch); sink.pre_commit(1); sink.commit(1)

Rows are streamed into a draft, one row group in memory. `pre_commit` closes it, syncs it and gives it a name that
readers ignore; `commit` gives it one that they see, by a link. An epoch is one file, also where aborted ones go with
it, so that readers never see a part of one. Every name is used once, so nobody overwrites anything
(file_place.py). Order on disk: draft, fsync -> staged name, fsync of its directory -> visible name, fsync -> staged
name removed. A call that fails while it writes or syncs poisons the sink: open it again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from iopool import FileSystem, LocalFileSystem
from lsmstate.checkpoint.connect.file_place import Part, Place
from lsmstate.checkpoint.connect.parquet_draft import ParquetDraft, check_parquet_can, read_draft
from lsmstate.checkpoint.connect.sink import check_fits, check_next, check_staged, checked_opening
from lsmstate.engine.epochs import check_epoch
from lsmstate.errors import FencedError, StoreClosedError, StorePoisonedError
from lsmstate.manifest.names import new_attempt


class FileSink:
    """Writes what it is given to files of an epoch each; see `Sink`."""

    def __init__(self, path: str | os.PathLike[str], format: str = "parquet", *, fs: FileSystem | None = None) -> None:  # noqa: A002
        if format != "parquet":
            raise ValueError(f"format must be 'parquet', not {format!r}")
        self._fs = fs or LocalFileSystem()
        self._path = os.fspath(path)
        self._lock = threading.RLock()
        self._place: Place | None = None
        self._forget()

    def _forget(self) -> None:
        self._poison: BaseException | None = None
        self._schema: pa.Schema | None = None
        self._draft: ParquetDraft | None = None
        self._drafts = 0
        self._staged: dict[int, list[Part]] = {}
        self._carried: list[Part] = []  # of epochs that were aborted

    def __repr__(self) -> str:
        return f"FileSink({self._path!r})"

    def open(self, name: str, committed_epoch: int | None) -> None:
        committed = checked_opening(name, committed_epoch)
        with self._lock:
            self.close()
            place = Place(self._fs, self._fs.resolve(self._path))
            place.make()
            self._attempt = new_attempt()
            generation = place.enter(name, self._attempt, committed)
            place.settle(generation, committed)
            self._forget()
            self._schema, self._generation, self._committed = place.schema(), generation, committed
            self._place = place

    def write(self, batch: pa.RecordBatch) -> None:
        with self._lock:
            place = self._ready()
            self._check(place, batch)
            if not batch.num_rows:
                return
            with self._poisons():
                if self._schema is None:
                    place.bind_schema(batch.schema.remove_metadata())
                    self._schema = batch.schema.remove_metadata()
                if self._draft is None:
                    self._draft = self._new_draft(place)
                self._draft.write(batch.replace_schema_metadata(None))

    def pre_commit(self, epoch: int) -> dict[str, Any]:
        check_epoch(epoch)
        with self._lock:
            place = self._ready()
            check_next(repr(self), epoch, self._committed, self._staged)
            place.check(self._generation)
            with self._poisons():
                staged = self._stage(place, epoch)
            return {"files": [part.visible for part in staged]}

    def commit(self, epoch: int) -> None:
        check_epoch(epoch)
        with self._lock:
            place = self._ready()
            place.check(self._generation)
            if epoch <= self._committed:
                return
            check_staged(repr(self), epoch, self._staged)
            due = [part for staged, parts in self._staged.items() if staged <= epoch for part in parts]
            with self._poisons():
                place.publish(due)
                place.remove("staged", (str(part) for part in due))
                if due:
                    place.sync_staged()
            self._staged = {staged: parts for staged, parts in self._staged.items() if staged > epoch}
            self._committed = epoch

    def abort(self, epoch: int) -> None:
        check_epoch(epoch)
        with self._lock:
            self._ready()
            self._carried += self._staged.pop(epoch, [])

    def close(self) -> None:
        with self._lock:
            draft, self._draft, self._place = self._draft, None, None
            if draft is not None:
                with suppress(OSError):
                    draft.discard()
                with suppress(OSError):
                    self._fs.unlink(draft.path)

    # ---- inside

    def _check(self, place: Place, batch: pa.RecordBatch) -> None:
        """Raises SchemaError before anything is changed."""
        if self._schema is not None:
            check_fits(place.path, self._schema, batch)
            return
        check_fits(place.path, getattr(batch, "schema", pa.schema([])), batch)
        check_parquet_can(place.path, batch.schema)

    def _stage(self, place: Place, epoch: int) -> list[Part]:
        """Makes one durable file of all rows that were not committed, so that the epoch appears at once."""
        draft, carried = self._draft, self._carried
        if draft is not None:
            draft.finish()
        self._draft = None
        drafts = [] if draft is None else [draft]
        if carried and (draft is not None or len(carried) > 1):
            paths = [place.staged_path(part) for part in carried] + [one.path for one in drafts]
            drafts.append(self._joined(place, paths))
        parts: list[Part] = []
        if drafts:
            parts = [Part(epoch, self._generation, self._attempt, self._drafts)]
            place.stage(drafts[-1].path, parts[0])
        elif carried:
            parts = [replace(carried[0], epoch=epoch)]
            place.stage(place.staged_path(carried[0]), parts[0])
        place.sync_staged()
        left = [str(part) for part in carried if part not in parts]
        if left:
            place.remove("staged", left)
            place.sync_staged()
        place.remove("drafts", [one.path.rpartition("/")[2] for one in drafts])
        self._staged[epoch], self._carried = parts, []
        return parts

    def _new_draft(self, place: Place) -> ParquetDraft:
        self._drafts += 1
        assert self._schema is not None
        return ParquetDraft(self._fs, place.draft_path(f"{self._attempt}-{self._drafts:06d}"), self._schema)

    def _joined(self, place: Place, paths: Sequence[str]) -> ParquetDraft:
        """One file of several."""
        joined = self._new_draft(place)
        try:
            for path in paths:
                for batch in read_draft(self._fs, path):
                    joined.write(batch)
            joined.finish()
        except BaseException:
            joined.discard()
            raise
        return joined

    def _ready(self) -> Place:
        if self._place is None:
            raise StoreClosedError(f"{self!r}: is not open; call open")
        if isinstance(self._poison, FencedError):
            raise FencedError(str(self._poison))
        if self._poison is not None:
            raise StorePoisonedError(
                f"{self!r}: a write failed ({self._poison}); look after the disk, and open the sink again: what was "
                "committed is there"
            ) from self._poison
        return self._place

    @contextmanager
    def _poisons(self) -> Iterator[None]:
        """What fails in between may have been done by half: only a new `open` can tell."""
        try:
            yield
        except BaseException as error:
            self._poison = error
            raise
