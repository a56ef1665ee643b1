"""File I/O, the threads that do it and the memory it waits for: a leaf that knows nothing of the engine."""

from iopool.directories import above, make_dirs
from iopool.errors import JobLost, MemoryTimeout, PoolBusy, PoolClosed
from iopool.fs import Bytes, FileLock, FileSystem, Kind, LocalFileSystem, WritableFile
from iopool.lane import LaneMetrics
from iopool.memory import MemoryAccount, MemoryController, MemoryUsage
from iopool.pool import Lane, WorkerPool
from iopool.ticket import Ticket

__all__ = [
    "Bytes",
    "FileLock",
    "FileSystem",
    "JobLost",
    "Kind",
    "Lane",
    "LaneMetrics",
    "LocalFileSystem",
    "MemoryAccount",
    "MemoryController",
    "MemoryTimeout",
    "MemoryUsage",
    "PoolBusy",
    "PoolClosed",
    "Ticket",
    "WorkerPool",
    "WritableFile",
    "above",
    "make_dirs",
]
