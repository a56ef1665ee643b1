"""Copies of a sound state with some bytes changed, made and read so cheaply that every byte can have its turn.

Copies share the inodes of all files that are sound, and readers share the SSTables that were opened on them: what was
read of these bytes once, and found right, is not parsed and summed again for each copy. A changed file is always
opened anew, and so is a sound one that stands under another name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from iopool import FileSystem
from lsmstate.engine import verify
from lsmstate.engine.core import Core
from lsmstate.refs import FileRef
from lsmstate.schema import Side
from lsmstate.sstable.cache import FileCache
from lsmstate.sstable.reader import SSTable
from tests.support.simdisk import Dirs, Disk, Inode, replaced
from tests.support.simfs import SimFileSystem

Tree = dict[str, bytes | None]
_Tables = dict[tuple[Inode, str, FileRef], SSTable]


class Sound:
    """A sound state. `tree` is all of it; equal files are one."""

    def __init__(self, fs: SimFileSystem) -> None:
        self.tree: Tree = fs.tree()
        self._dirs: Dirs = SimFileSystem.of(self.tree).point(0).durable
        self._tables: _Tables = {}

    def changed(self, path: str, data: bytes) -> SimFileSystem:
        """A copy with one file's content replaced, under all its names."""
        was, new = self.tree[path], Inode(data)
        nodes = {node for entries in self._dirs.values() for node in entries.values() if isinstance(node, Inode)}
        return SimFileSystem(Disk(replaced(self._dirs, {node: new for node in nodes if node.data() == was})))

    def files(self, fs: SimFileSystem) -> FileCache:
        """The open files of a reader of a copy."""
        shared = {node for entries in self._dirs.values() for node in entries.values()}
        mounted = fs.point(0).durable
        places = {
            f"{path}/{name}": node
            for path, entries in mounted.items()
            for name, node in entries.items()
            if isinstance(node, Inode) and node in shared
        }
        return _SharedFiles(places, self._tables)


class _SharedFiles(FileCache):
    def __init__(self, places: Mapping[str, Inode], tables: _Tables) -> None:
        super().__init__()
        self._places, self._tables = places, tables

    def get(self, fs: FileSystem, directory: str, ref: FileRef, sides: Mapping[int, Side]) -> SSTable:
        path = f"{directory}/{ref.name}"
        node = self._places.get(path)
        if node is None:
            return super().get(fs, directory, ref, sides)
        table = self._tables.get((node, path, ref))
        if table is None:
            table = self._tables[node, path, ref] = super().get(fs, directory, ref, sides)
        return table


@contextmanager
def checked_once() -> Iterator[None]:
    """While it lasts, `verify` does not check a file again of which it has found equal bytes sound."""
    check = verify._check_file
    sound: dict[object, object] = {}

    def checked(core: Core, path: str, ref: FileRef, next_id: int, hashes: verify.Hashes | None) -> Iterator[str]:
        key = (path, _content(core.fs, path), ref, next_id, hashes, tuple(map(id, core.sides)))
        if key not in sound:
            problems = list(check(core, path, ref, next_id, hashes))
            yield from problems
            if not problems:
                sound[key] = core.sides  # so that no others take their place

    with mock.patch.object(verify, "_check_file", checked):
        yield


def _content(fs: FileSystem, path: str) -> bytes | None:
    return bytes(fs.map(path)) if fs.kind(path) == "file" else None
