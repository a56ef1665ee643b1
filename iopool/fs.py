"""The file system as the engine sees it: the only place where lsmstate touches files.

Owns every file call. `FileSystem` is the seam that tests replace by simulated disks; `LocalFileSystem` is the real one.
Threading: a `LocalFileSystem` has no state and may be used from any thread; a `WritableFile` belongs to one thread.
Invariants: files are created exclusively, private to their owner (or open to the group, where a directory says so by
its setgid bit: then its group may do with what is new in it what it may do there), and written once;
links are never followed; only regular files are read. `OSError` passes through untouched.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Sequence
from typing import Literal, Protocol

Bytes = bytes | bytearray | memoryview
Kind = Literal["file", "dir", "other"]

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_RAISE_THE_LIMIT = "raise the limit, or remove it (ulimit -v; in Spark's workers spark.executor.pyspark.memory)"
_NEEDS = "a state needs a POSIX file system with hard links and with fsync of files and directories: put it on another"
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # what a file system says that has no such call
_VECTOR_MAX = 512  # below IOV_MAX everywhere


class WritableFile(Protocol):
    """A new file, written from its beginning to its end by one thread."""

    def write(self, views: Sequence[Bytes]) -> None:
        """Appends all bytes of all views, in order."""

    def sync(self) -> None:
        """Makes what was written durable (fsync). After a failure the file must be abandoned."""

    def close(self) -> None:
        """Closes the file; nothing is promised about what was not synced."""


class FileLock(Protocol):
    """An exclusive lock that ends with `release` or with its process."""

    def release(self) -> None:
        """Gives the lock up; the file stays."""


class FileSystem(Protocol):
    """All that the engine asks of a file system. Paths are absolute or relative strings."""

    def resolve(self, path: str) -> str:
        """The absolute path, links followed: what a user names may be a link, what lies inside a state may not."""

    def kind(self, path: str) -> Kind | None:
        """What is at `path`, links not followed; None if nothing is."""

    def make_dir(self, path: str) -> None:
        """Creates one directory, private to its owner; an existing directory is fine."""

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, in no order."""

    def create(self, path: str) -> WritableFile:
        """A new file. Raises FileExistsError if the name is taken."""

    def read(self, path: str, max_bytes: int) -> bytes:
        """The whole content of a regular file of at most `max_bytes`; a larger one raises OSError(EFBIG)."""

    def map(self, path: str) -> memoryview:
        """A read-only view of a regular file's bytes, mapped where the system can; it lives as long as its users."""

    def link(self, source: str, target: str) -> None:
        """A second name for a file. Raises FileExistsError if the name is taken: exactly one of many callers wins."""

    def unlink(self, path: str) -> None:
        """Removes a name. Raises FileNotFoundError if it is gone."""

    def sync_file(self, path: str) -> None:
        """Makes a file durable that somebody else has written, who may have died before syncing it."""

    def sync_dir(self, path: str) -> None:
        """Makes the directory's entries durable: names created, linked and removed so far."""

    def lock(self, path: str) -> FileLock | None:
        """Creates the file if need be and locks it exclusively; None if another holder lives."""


class LocalFileSystem:
    """The real file system."""

    def __init__(self, *, group_access: bool = False) -> None:
        self._group_access = group_access
        self._file_mode = 0o660 if group_access else 0o600
        self._dir_mode = 0o770 if group_access else 0o700

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def kind(self, path: str) -> Kind | None:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISREG(mode):
            return "file"
        return "dir" if stat.S_ISDIR(mode) else "other"

    def make_dir(self, path: str) -> None:
        try:
            os.mkdir(path, self._dir_mode)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise
            return
        if shared := self._group_bits(path):
            os.chmod(path, self._dir_mode | shared | os.lstat(path).st_mode & stat.S_ISGID)  # whatever the umask is

    def list_dir(self, path: str) -> list[str]:
        return os.listdir(path)

    def create(self, path: str) -> WritableFile:
        fd = os.open(path, _CREATE, self._file_mode)
        if shared := self._group_bits(path):
            os.fchmod(fd, self._file_mode | shared & 0o060)
        return _LocalFile(fd, path)

    def read(self, path: str, max_bytes: int) -> bytes:
        fd = _open_regular(path)
        try:
            size = os.fstat(fd).st_size
            if size > max_bytes:
                raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
            parts, left = [], max_bytes + 1  # it may grow while it is read
            while left > 0 and (part := os.read(fd, min(left, size + 1))):
                parts.append(part)
                left -= len(part)
            if left <= 0:
                raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
            return b"".join(parts)
        finally:
            os.close(fd)

    def map(self, path: str) -> memoryview:
        fd = _open_regular(path)
        try:
            return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
        except ValueError:  # an empty file cannot be mapped
            return memoryview(b"")
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise OSError(error.errno, error.strerror, path) from None
            size = os.fstat(fd).st_size
            told = f"its {size} bytes do not fit into the address space that this process may use; {_RAISE_THE_LIMIT}"
            raise OSError(errno.ENOMEM, told, path) from None
        finally:
            os.close(fd)

    def link(self, source: str, target: str) -> None:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno in (*_CANNOT, errno.EPERM):
                told = f"{os.strerror(error.errno or 0)}: no hard links here; {_NEEDS}"
                raise OSError(error.errno, told, target) from None
            raise

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_file(self, path: str) -> None:
        fd = _open_regular(path)
        try:
            _sync(fd, path)
        finally:
            os.close(fd)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, _READ | os.O_DIRECTORY)
        try:
            _sync(fd, path)
        finally:
            os.close(fd)

    def lock(self, path: str) -> FileLock | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path, flags, self._file_mode)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            if (shared := self._group_bits(path)) and os.fstat(fd).st_uid == os.geteuid():
                os.fchmod(fd, self._file_mode | shared & 0o060)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return _LocalLock(fd)

    def _group_bits(self, path: str) -> int:
        """What the group may do with something new: all if this was asked for, else what a setgid directory says."""
        if self._group_access:
            return 0o070
        try:
            mode = os.stat(os.path.dirname(path) or ".").st_mode
        except FileNotFoundError:
            return 0
        return mode & 0o070 if mode & stat.S_ISGID else 0


class _LocalFile:
    def __init__(self, fd: int, path: str) -> None:
        self._fd, self._path = fd, path

    def write(self, views: Sequence[Bytes]) -> None:
        waiting = [v for v in (memoryview(view).cast("B") for view in views) if len(v)]
        while waiting:
            try:
                written = os.writev(self._fd, waiting[:_VECTOR_MAX])
            except OSError as error:
                raise OSError(error.errno, error.strerror, self._path) from None
            while waiting and written >= len(waiting[0]):
                written -= len(waiting.pop(0))
            if written:
                waiting[0] = waiting[0][written:]

    def sync(self) -> None:
        _sync(self._fd, self._path)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class _LocalLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if os.getpid() == self._pid:  # a forked child shares the lock and must not end it
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _sync(fd: int, path: str) -> None:
    """fsync, with an error that names the file, and what is missing where a file system has none."""
    try:
        os.fsync(fd)
    except OSError as error:
        told = os.strerror(error.errno or 0)
        if error.errno in _CANNOT:
            told = f"{told}: no fsync of this here; {_NEEDS}"
        raise OSError(error.errno, told, path) from None


def _open_regular(path: str) -> int:
    """A descriptor of a regular file; a link, a pipe or a device is refused before anything is read."""
    fd = os.open(path, _READ | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd
