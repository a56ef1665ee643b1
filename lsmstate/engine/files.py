"""Runs in files, as views see them: known by their bounds, opened when a reader needs them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lsmstate.errors import CorruptionError, SnapshotExpired
from lsmstate.keys import bucket_start, encode_key
from lsmstate.manifest.version import Version
from lsmstate.refs import FileRef, RunRef
from lsmstate.sstable.reader import SSTable
from lsmstate.sstable.run import Run

if TYPE_CHECKING:
    from lsmstate.engine.core import Core

_ASK_MAX = 64  # keys to look up in a filter; a wider range is read without asking


class FileSource:
    """One run of a file, or what is left of it: `ref` says from which time on."""

    __slots__ = ("_core", "_file", "_number", "ref")

    def __init__(self, core: Core, file: FileRef, number: int, ref: RunRef) -> None:
        self._core, self._file, self._number = core, file, number
        self.ref = ref

    def open(self, low_ts: int, high_ts: int) -> Run | None:
        """The run; None if the file's key filter knows that no bucket between the two times holds a row."""
        core = self._core
        table = open_table(core, self._file)
        ref = self.ref
        width = core.sides[ref.side].bucket_us
        first, last = max(ref.first_bucket, low_ts // width), min(ref.last_bucket, high_ts // width)
        if (first, last) != (ref.first_bucket, ref.last_bucket) and last - first < _ASK_MAX:
            keys = (encode_key(ref.side, bucket_start(n, width)) for n in range(first, last + 1))
            if not table.key_filter.may_contain(keys):
                return None
        return table.runs[self._number]


class FileSources:
    """The sources of a version, computed once for as long as the version is in use."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._last: tuple[object, list[FileSource]] | None = None

    def of(self, version: Version) -> list[FileSource]:
        """The sources of all files of a version."""
        last = self._last
        if last is not None and last[0] is version.files:
            return last[1]
        files = version.files.values()
        sources = [
            FileSource(self._core, file, number, part)
            for file in files
            for number, part in enumerate(file.parts)
            if part is not None
        ]
        self._last = (version.files, sources)
        return sources


def open_table(core: Core, file: FileRef) -> SSTable:
    """A file of the state, opened once per process. Raises SnapshotExpired if another handle has retired it."""
    try:
        return core.cache.get(core.fs, core.sst_directory, file, core.sides_by_number)
    except FileNotFoundError:
        if file.name in core.log.head().version.files:
            where = f"{core.sst_directory}/{file.name}"
            raise CorruptionError(where, 0, "a file of the newest epoch", "none") from None
        raise SnapshotExpired(
            f"{core.path}: {file.name} is gone, because its epoch was retired by another handle; reopen"
        ) from None


def check_retained(core: Core, file: FileRef, epoch: int) -> None:
    """Raises CorruptionError unless a file of a retained epoch is there, and tells of itself what the epoch tells."""
    where = f"{core.sst_directory}/{file.name}"
    with suppress(FileNotFoundError):
        core.cache.get(core.fs, core.sst_directory, file, core.sides_by_number)
        if core.fs.kind(where) is not None:  # what is mapped may be gone
            return
    raise CorruptionError(where, 0, f"a file of epoch {epoch}", "none")
