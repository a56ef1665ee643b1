"""A disk in memory: files, directories, the journal of changes, and what of it a power cut would leave.

Owns the state below `SimFileSystem`. Directories are a flat dict from path to entries, because nothing in the
protocol removes or renames a directory. Paths are normal: absolute, no trailing slash, the root being "".
Threading: callers hold `mutex` while they look or change; a `Point` never changes.
Invariants: a file only grows, and only until it is closed, so its content at any earlier time is a prefix of
the last; inodes of a mounted image are closed, and shared by all its copies. A directory follows its parent
in `dirs`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import threading
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

_NAME_MAX = 255
_DIGEST_BYTES = 16


class Inode:
    """A file apart from its names. Compared by identity."""

    __slots__ = ("_digest", "_parts", "closed", "poisoned", "size", "synced")

    def __init__(self, data: bytes = b"", *, closed: bool = True) -> None:
        self._parts = [data]
        self._digest: bytes | None = None
        self.size = len(data)
        self.synced = len(data)  # how much the last good sync made durable
        self.poisoned = False  # a sync failed: later ones succeed and promise nothing, as on Linux
        self.closed = closed

    def append(self, data: bytes) -> None:
        self._parts.append(data)
        self._digest = None
        self.size += len(data)

    def data(self) -> bytes:
        """The whole content."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def digest(self) -> bytes:
        """A digest of the content, computed once."""
        if self._digest is None:
            self._digest = blake2b(self.data(), digest_size=_DIGEST_BYTES).digest()
        return self._digest


class Directory:
    """Stands in a parent's entries for a directory, whose own entries are in `dirs` under its path."""

    __slots__ = ()


DIR: Final = Directory()
Node = Inode | Directory
Dirs = dict[str, dict[str, Node]]


class Entry(NamedTuple):
    """One change in the journal."""

    op: str  # create, lock (that created its file), link, unlink, make_dir, write, sync, sync_dir
    path: str  # normal; of a link its new name
    op_index: int  # among all operations of its process: what a fault sees
    node: Node | None  # what the name stands for from now on, or the file written or synced
    size: int  # write: the size since; sync: how much of it is durable since; otherwise 0


class FileState(NamedTuple):
    size: int
    synced: int


class Change(NamedTuple):
    """One change of one directory entry; None removes it."""

    parent: str
    name: str
    node: Node | None

    def apply(self, dirs: Dirs) -> None:
        if self.node is None:
            dirs[self.parent].pop(self.name, None)
        else:
            dirs[self.parent][self.name] = self.node


class Point(NamedTuple):
    """What a power cut finds after some part of the journal. Neighbours share all that did not change."""

    durable: Dirs  # entries that survive for certain, if their directory does
    pending: tuple[Change, ...]  # since the last sync of their directory, oldest first
    unsettled: dict[Inode, FileState]  # files not synced whole, or still growing; all others are durable as they are

    def after(self, entry: Entry) -> Point:
        """The point one entry later."""
        durable, pending, unsettled = self
        op, path, _, node, size = entry
        if op in ("write", "sync"):
            assert isinstance(node, Inode)
            state = unsettled.get(node)
            if state is None:  # synced again after it was settled
                return self
            state = FileState(size, state.synced) if op == "write" else FileState(state.size, size)
            return Point(durable, pending, _with_file(unsettled, node, state))
        if op == "sync_dir":
            durable = {**durable, path: durable[path].copy()}
            for change in pending:
                if change.parent == path:
                    change.apply(durable)
            return Point(durable, tuple(c for c in pending if c.parent != path), unsettled)
        if op == "make_dir":
            durable = {**durable, path: {}}
        elif op == "create":
            assert isinstance(node, Inode)
            unsettled = _with_file(unsettled, node, FileState(0, 0))
        parent, _, name = path.rpartition("/")
        return Point(durable, (*pending, Change(parent, name, node)), unsettled)


class Disk:
    """Directories and files as a running system sees them, and the journal since the disk was mounted."""

    __slots__ = ("_digest", "_points", "dirs", "journal", "locked", "mutex")

    def __init__(self, dirs: Dirs | None = None) -> None:
        """Mounts `dirs`, all of it durable. Requires: nobody changes them later; their inodes are closed."""
        base: Dirs = {"": {}} if dirs is None else dirs
        self.dirs: Dirs = {path: entries.copy() for path, entries in base.items()}
        self.journal: list[Entry] = []
        self.locked: dict[Inode, object] = {}  # to the lock that holds it
        self.mutex = threading.Lock()
        self._points = [Point(base, (), {})]
        self._digest = (-1, b"")  # with the length of the journal it belongs to

    def find(self, path: str) -> Node | None:
        """What is at a normal path. Raises as a lookup does if its directory is missing or is a file."""
        if not path:
            return DIR
        parent, _, name = path.rpartition("/")
        entries = self.dirs.get(parent)
        if entries is None:
            raise os_error(errno.ENOTDIR if self._is_below_file(parent) else errno.ENOENT, path)
        return entries.get(name)

    def file(self, path: str) -> Inode:
        """The regular file at a normal path; raises as `iopool.fs` does for anything else."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(node, Inode):
            raise os_error(errno.EINVAL, path)
        return node

    def entries(self, path: str) -> dict[str, Node]:
        """The entries of the directory at a normal path."""
        entries = self.dirs.get(path)
        if entries is None:
            raise os_error(errno.ENOENT if self.find(path) is None else errno.ENOTDIR, path)
        return entries

    def change(self, op: str, path: str, index: int, node: Node | None) -> None:
        """Sets or removes a directory entry, and journals it. Requires: `find(path)` did not raise."""
        parent, _, name = path.rpartition("/")
        Change(parent, name, node).apply(self.dirs)
        self.journal.append(Entry(op, path, index, node, 0))

    def point(self, at: int) -> Point:
        """What is durable, and what is not, after the first `at` entries of the journal."""
        if not 0 <= at <= len(self.journal):
            raise ValueError(f"no point {at} in a journal of {len(self.journal)} entries")
        while len(self._points) <= at:
            self._points.append(self._points[-1].after(self.journal[len(self._points) - 1]))
        return self._points[at]

    def copied(self) -> Disk:
        """A new disk mounted on all that is visible here, synced or not."""
        nodes = [node for entries in self.dirs.values() for node in entries.values()]
        growing = {n: Inode(n.data()) for n in nodes if isinstance(n, Inode) and not n.closed}
        return Disk({path: entries.copy() for path, entries in replaced(self.dirs, growing).items()})

    def digest(self) -> bytes:
        """A digest of all names and bytes: equal for equal trees, in every process and run."""
        length, digest = self._digest
        if length == len(self.journal):
            return digest
        parts: list[bytes] = []
        for path in sorted(self.dirs):
            parts.append(path.encode(errors="surrogateescape") + b"\0")
            for name, node in sorted(self.dirs[path].items()):
                parts.append(name.encode(errors="surrogateescape"))
                parts.append(b"\0f" + node.digest() if isinstance(node, Inode) else b"\0d")
        digest = blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()
        self._digest = (len(self.journal), digest)
        return digest

    def _is_below_file(self, path: str) -> bool:
        while path not in self.dirs:
            parent, _, name = path.rpartition("/")
            if isinstance(self.dirs.get(parent, {}).get(name), Inode):
                return True
            path = parent
        return False


def replaced(dirs: Dirs, files: Mapping[Inode, Inode]) -> Dirs:
    """The same directories with some files exchanged."""
    if not files:
        return dirs
    return {
        path: {n: files.get(node, node) if isinstance(node, Inode) else node for n, node in entries.items()}
        for path, entries in dirs.items()
    }


@lru_cache(maxsize=1 << 16)
def normal(path: str) -> str:
    """The normal form of a path; a relative one starts at the root."""
    if not path:
        raise os_error(errno.ENOENT, path)
    if "\0" in path:
        raise ValueError("embedded null byte")
    path = posixpath.normpath("/" + path.lstrip("/"))
    if any(len(name.encode(errors="surrogateescape")) > _NAME_MAX for name in path.split("/")):
        raise os_error(errno.ENAMETOOLONG, path)
    return "" if path == "/" else path


def os_error(code: int, path: str) -> OSError:
    """The OSError, of the right subclass, that the system would raise."""
    return OSError(code, os.strerror(code), path)


def _with_file(files: dict[Inode, FileState], node: Inode, state: FileState) -> dict[Inode, FileState]:
    files = {**files, node: state}
    if node.closed and state.size == state.synced == node.size:
        del files[node]  # settled: durable as it will always be
    return files
