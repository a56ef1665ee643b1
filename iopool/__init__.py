"""File I/O and the threads that do it: a leaf that knows nothing of the engine."""

from iopool.fs import Bytes, FileLock, FileSystem, Kind, LocalFileSystem, WritableFile

__all__ = ["Bytes", "FileLock", "FileSystem", "Kind", "LocalFileSystem", "WritableFile"]
