"""Remembers a failed fsync.

After one, nobody knows what the disk holds, and asking again would lie: the kernel forgets what it could not write.
So the file is abandoned, and the store refuses to promise anything more until it is opened anew from what is on
disk.
"""

from __future__ import annotations

from iopool import FileSystem, WritableFile


class PoisonableFileSystem:
    """A file system that remembers whether an fsync has failed."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.poison: OSError | None = None
        self.resolve = fs.resolve
        self.kind = fs.kind
        self.make_dir = fs.make_dir
        self.list_dir = fs.list_dir
        self.read = fs.read
        self.map = fs.map
        self.link = fs.link
        self.unlink = fs.unlink
        self.lock = fs.lock

    def create(self, path: str) -> WritableFile:
        return _File(self, self._fs.create(path))

    def sync_file(self, path: str) -> None:
        try:
            self._fs.sync_file(path)
        except OSError as error:
            self.poison = error
            raise

    def sync_dir(self, path: str) -> None:
        try:
            self._fs.sync_dir(path)
        except OSError as error:
            self.poison = error
            raise


class _File:
    def __init__(self, fs: PoisonableFileSystem, file: WritableFile) -> None:
        self._fs = fs
        self.write = file.write
        self.close = file.close
        self._sync = file.sync

    def sync(self) -> None:
        try:
            self._sync()
        except OSError as error:
            self._fs.poison = error
            raise
