"""The file system of the crash tests: `iopool.fs.FileSystem` in memory, with a journal and faults.

A `SimFileSystem` is one process's view of a disk: `spawn` gives another process on the same disk, `kill` ends
one and frees its locks, `copy` mounts all that is visible on a fresh disk. For power cuts see `crash`.
What is durable: a file's bytes up to its last good sync; a directory entry (created, linked, removed, or of a
new directory) after a `sync_dir` of the directory it stands in. Syncing a file does nothing for its name.
Every call is an operation with an index, counted from 0 per process; those that change the disk are also in
the `journal`, counted on their own.
Threading: any thread may call; faults run outside the disk's mutex, so they may block or call `kill`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from iopool.fs import Bytes, Kind
from tests.support.simdisk import DIR, Disk, Entry, Inode, Point, normal, os_error

Fault = Callable[[str, str, int], None]
"""Called with the operation's name, its path as the caller gave it (of a link the new name) and its index."""


class ProcessKilled(BaseException):
    """Raised by every operation of a killed process; no handler of errors should catch it."""


def fail_at(index: int, code: int) -> Fault:
    """A fault that raises OSError(code) at one operation."""

    def fault(op: str, path: str, at: int) -> None:
        if at == index:
            raise OSError(code, os.strerror(code), path)

    return fault


class SimFileSystem:
    """A simulated file system.

    `fault` is called before each operation: if it raises, the operation did nothing (a write in pieces keeps
    the earlier ones). `fault_after` is called after each operation that succeeded: it did its work, and
    failed all the same. A sync that failed either way poisons its file: what was not durable never will be,
    though later syncs succeed and the bytes can be read until the power goes.
    `short_write_bytes` cuts each write into pieces of that size, each an operation of its own.
    """

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        fault: Fault | None = None,
        fault_after: Fault | None = None,
        short_write_bytes: int | None = None,
    ) -> None:
        self.fault = fault
        self.fault_after = fault_after
        self.short_write_bytes = short_write_bytes
        self.ops = 0  # the index of the next operation
        self.killed = False
        self._disk = Disk() if disk is None else disk

    @classmethod
    def of(cls, tree: Mapping[str, bytes | None]) -> SimFileSystem:
        """A fresh file system, all durable, of files and (None) directories; missing parents are made."""
        disk = Disk()
        for path, data in tree.items():
            names = normal(path).split("/")[1:]
            for depth in range(1, len(names) + (data is None)):
                parent = "/" + "/".join(names[:depth])
                if disk.find(parent) is None:
                    disk.change("make_dir", parent, 0, DIR)
                    disk.dirs[parent] = {}
            if data is not None:
                disk.change("create", normal(path), 0, Inode(data))
        return cls(Disk(disk.dirs))

    @property
    def journal(self) -> list[Entry]:
        """The changes since the disk was mounted, of all its processes. Not to be changed."""
        return self._disk.journal

    def point(self, at: int) -> Point:
        """What is durable, and what is not, after the first `at` entries of the journal."""
        with self._disk.mutex:
            return self._disk.point(at)

    def tree(self) -> dict[str, bytes | None]:
        """All files, and directories as None, by absolute path. Not an operation."""
        with self._disk.mutex:
            return {
                f"{path}/{name}": node.data() if isinstance(node, Inode) else None
                for path, entries in self._disk.dirs.items()
                for name, node in entries.items()
            }

    def digest(self) -> bytes:
        """A digest of all names and bytes: equal for equal trees, in every run. Not an operation."""
        with self._disk.mutex:
            return self._disk.digest()

    def copy(self) -> SimFileSystem:
        """A fresh file system of all that is visible here: durable, unlocked, without faults."""
        with self._disk.mutex:
            return SimFileSystem(self._disk.copied())

    def spawn(self) -> SimFileSystem:
        """Another process on the same disk, without faults."""
        return SimFileSystem(self._disk)

    def kill(self) -> None:
        """Ends this process, not the system: its locks are free, and what it wrote stays visible."""
        with self._disk.mutex:
            self.killed = True
            locked = self._disk.locked
            for node in [n for n, lock in locked.items() if isinstance(lock, _SimLock) and lock.holder is self]:
                del locked[node]

    def resolve(self, path: str) -> str:
        return os.path.abspath(path)  # there are no links here

    def kind(self, path: str) -> Kind | None:
        with self._operation("kind", path):
            try:
                node = self._disk.find(normal(path))
            except FileNotFoundError:
                return None
            if node is None:
                return None
            return "file" if isinstance(node, Inode) else "dir"

    def make_dir(self, path: str) -> None:
        with self._operation("make_dir", path) as index:
            disk, key = self._disk, normal(path)
            node = disk.find(key)
            if isinstance(node, Inode):
                raise os_error(errno.EEXIST, path)
            if node is None:
                disk.change("make_dir", key, index, DIR)
                disk.dirs[key] = {}

    def list_dir(self, path: str) -> list[str]:
        with self._operation("list_dir", path):
            return list(self._disk.entries(normal(path)))

    def create(self, path: str) -> _SimFile:
        with self._operation("create", path) as index:
            key = normal(path)
            if self._disk.find(key) is not None:
                raise os_error(errno.EEXIST, path)
            node = Inode(closed=False)
            self._disk.change("create", key, index, node)
        return _SimFile(self, path, node)

    def read(self, path: str, max_bytes: int) -> bytes:
        with self._operation("read", path):
            node = self._disk.file(normal(path))
            if node.size > max_bytes:
                raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
            return node.data()

    def map(self, path: str) -> memoryview:
        with self._operation("map", path):
            return memoryview(self._disk.file(normal(path)).data())

    def link(self, source: str, target: str) -> None:
        with self._operation("link", target) as index:
            disk, key = self._disk, normal(target)
            node = disk.find(normal(source))
            if node is None:
                raise os_error(errno.ENOENT, source)
            if disk.find(key) is not None:
                raise os_error(errno.EEXIST, target)
            if not isinstance(node, Inode):
                raise os_error(errno.EPERM, source)
            disk.change("link", key, index, node)

    def unlink(self, path: str) -> None:
        with self._operation("unlink", path) as index:
            key = normal(path)
            node = self._disk.find(key)
            if node is None:
                raise os_error(errno.ENOENT, path)
            if not isinstance(node, Inode):
                raise os_error(errno.EISDIR, path)
            self._disk.change("unlink", key, index, None)

    def sync_file(self, path: str) -> None:
        if not isinstance(node := self._disk.find(normal(path)), Inode):
            raise os_error(errno.ENOENT if node is None else errno.EINVAL, path)
        try:
            with self._operation("sync", path) as index:
                node.synced = node.synced if node.poisoned else node.size
                self._disk.journal.append(Entry("sync", normal(path), index, node, node.synced))
        except OSError:
            node.poisoned = True
            raise

    def sync_dir(self, path: str) -> None:
        with self._operation("sync_dir", path) as index:
            key = normal(path)
            self._disk.entries(key)
            self._disk.journal.append(Entry("sync_dir", key, index, None, 0))

    def lock(self, path: str) -> _SimLock | None:
        with self._operation("lock", path) as index:
            key = normal(path)
            node = self._disk.find(key)
            if node is None:
                node = Inode()
                self._disk.change("lock", key, index, node)
            if not isinstance(node, Inode):
                raise os_error(errno.EISDIR, path)
        lock = _SimLock(self, node)
        with self._disk.mutex:  # taken only here: after a fault nobody would release it
            return lock if self._disk.locked.setdefault(node, lock) is lock else None

    def _operation(self, op: str, path: str) -> _Operation:
        return _Operation(self, op, path)


class _Operation:
    """Counts an operation, calls the faults around it, and holds the disk's mutex while it is carried out."""

    __slots__ = ("_fs", "_index", "_op", "_path")

    def __init__(self, fs: SimFileSystem, op: str, path: str) -> None:
        self._fs, self._op, self._path = fs, op, path

    def __enter__(self) -> int:
        fs, mutex = self._fs, self._fs._disk.mutex
        with mutex:
            if fs.killed:
                raise ProcessKilled(f"{self._op} {self._path} by a killed process")
            self._index = fs.ops
            fs.ops += 1
        if fs.fault is not None:
            fs.fault(self._op, self._path, self._index)
        mutex.acquire()
        if fs.killed:
            mutex.release()
            raise ProcessKilled(f"killed before {self._op} {self._path}")
        return self._index

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fs = self._fs
        fs._disk.mutex.release()
        if kind is None and fs.fault_after is not None:
            fs.fault_after(self._op, self._path, self._index)


class _SimFile:
    def __init__(self, fs: SimFileSystem, path: str, node: Inode) -> None:
        self._fs, self._path, self._key, self._node = fs, path, normal(path), node

    def write(self, views: Sequence[Bytes]) -> None:
        data = b"".join([memoryview(view).cast("B") for view in views])
        step = self._fs.short_write_bytes or len(data)
        for start in range(0, len(data), max(step, 1)):
            with self._fs._operation("write", self._path) as index:
                if self._node.closed:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                self._node.append(data[start : start + step])
                self._journal("write", index, self._node.size)

    def sync(self) -> None:
        try:
            with self._fs._operation("sync", self._path) as index:
                if self._node.closed:
                    raise ValueError("sync of a closed file")
                if not self._node.poisoned:
                    self._node.synced = self._node.size
                self._journal("sync", index, self._node.synced)
        except OSError:
            self._node.poisoned = True
            raise

    def close(self) -> None:
        if not self._node.closed:
            self._node.closed = True  # also if it fails, as on Linux
            with self._fs._operation("close", self._path):
                pass

    def _journal(self, op: str, index: int, size: int) -> None:
        self._fs._disk.journal.append(Entry(op, self._key, index, self._node, size))


class _SimLock:
    def __init__(self, holder: SimFileSystem, node: Inode) -> None:
        self.holder, self._node = holder, node

    def release(self) -> None:
        disk = self.holder._disk
        with disk.mutex:
            if disk.locked.get(self._node) is self:
                del disk.locked[self._node]
