"""Pure functions computed once, because a hundred thousand images repeat the same bytes: decoding, encoding, merging.

Only what is computed from bytes is shared. Whether a file is there, and what it holds, is asked of each image anew;
damaged bytes raise anew; and every file is created, written in the same pieces, and synced anew, so that a crash finds
the same operations. What the functions give is never changed by the engine, so it may be shared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from iopool import Bytes, WritableFile
from lsmstate.engine import compactor
from lsmstate.engine.merge import Keep, MergedRun, merged_runs
from lsmstate.manifest.codec import decode
from lsmstate.manifest.version import Version, decode_version
from lsmstate.refs import RunRef
from lsmstate.schema import Side
from lsmstate.sstable import writer
from lsmstate.sstable.reader import StoredRun
from lsmstate.sstable.run import RunData, WritableRun

_ENTRIES_MAX = 1 << 16
_FILES_MAX = 1 << 12


@contextlib.contextmanager
def decoded_once() -> Iterator[None]:
    """While it lasts, documents, versions and sides are decoded once for equal bytes."""
    documents: dict[object, tuple[str, dict[str, Any]]] = {}
    versions: dict[object, tuple[Version, object]] = {}
    sides: dict[str, Side] = {}
    parse = Side.parse

    def document(path: str, data: bytes, name: str | None = None) -> tuple[str, dict[str, Any]]:
        return _once(documents, (path, data, name), lambda: decode(path, data, name))

    def version(*given: object) -> Version:
        key = tuple(map(id, given))  # they stay alive in the entry, so that no other object takes their place
        return _once(versions, key, lambda: (decode_version(*given), given))[0]

    def side(told: dict[str, Any]) -> Side:
        return _once(sides, repr(told), lambda: parse(told))

    with (
        mock.patch("lsmstate.manifest.log.decode", document),
        mock.patch("lsmstate.engine.identity.decode", document),
        mock.patch("lsmstate.manifest.log.decode_version", version),
        mock.patch.object(Side, "parse", side),
    ):
        yield


@contextlib.contextmanager
def encoded_once() -> Iterator[None]:
    """While it lasts, equal runs are merged once, and equal rows are encoded once.

    Runs of files are told apart by identity: the crash tests keep one open SSTable for equal bytes.
    """
    keeps: dict[object, tuple[Keep, object]] = {}
    merges: dict[object, tuple[list[MergedRun], object]] = {}
    files: dict[object, tuple[list[bytes], tuple[int, bytes], object]] = {}
    make_keep, write = compactor._keep, writer._write

    def keep(version: Version, side: int, kind: Side, part: RunRef, end: int | None) -> Keep:
        key = (version.watermark, version.tombstones, side, id(kind), part, end)
        return _once(keeps, key, lambda: (make_keep(version, side, kind, part, end), kind), _FILES_MAX)[0]

    def merged(
        side: int, kind: Side, runs: Sequence[StoredRun], rules: Sequence[Keep], rows_max: int, tick: Any
    ) -> list[MergedRun]:
        key = (side, id(kind), tuple(map(id, runs)), tuple(map(id, rules)), rows_max)
        alive = (kind, runs, rules)
        compute = lambda: (merged_runs(side, kind, runs, rules, rows_max, tick), alive)  # noqa: E731
        return _once(merges, key, compute, _FILES_MAX)[0]

    def written(
        file: WritableFile, uid: bytes, sides: Mapping[int, Side], runs: Sequence[WritableRun], epoch: int
    ) -> tuple[int, bytes]:
        key = (uid, epoch, tuple(map(id, sides.values())), tuple(map(_content, runs)))
        known = files.get(key)
        if known is None:
            noting = _Noting(file)
            told = write(noting, uid, sides, runs, epoch)
            return _once(files, key, lambda: (noting.pieces, told, (sides, runs)), _FILES_MAX)[1]
        for piece in known[0]:
            file.write([piece])
        return known[1]

    with (
        mock.patch("lsmstate.engine.compactor._keep", keep),
        mock.patch("lsmstate.engine.compactor.merged_runs", merged),
        mock.patch("lsmstate.sstable.writer._write", written),
    ):
        yield


class _Noting:
    """A file that notes what is written to it."""

    def __init__(self, file: WritableFile) -> None:
        self._file = file
        self.pieces: list[bytes] = []

    def write(self, views: Sequence[Bytes]) -> None:
        self.pieces.append(b"".join([memoryview(view).cast("B") for view in views]))
        self._file.write(self.pieces[-1:])

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _content(run: WritableRun) -> object:
    """What makes a run: its rows in memory, or itself where it is the only one of its kind."""
    if not isinstance(run, RunData):
        return id(run)
    columns = tuple(None if column is None else tuple(column.to_pylist()) for column in run._columns)
    return run.ref, run._hashes.tobytes(), run._ts.tobytes(), run._ids.tobytes(), columns, run._order.tobytes()


def _once(entries: dict[Any, Any], key: object, compute: Callable[[], Any], most: int = _ENTRIES_MAX) -> Any:
    found = entries.get(key)
    if found is None:
        if len(entries) >= most:
            entries.clear()
        found = entries[key] = compute()
    return found
