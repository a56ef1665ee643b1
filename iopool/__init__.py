"""File I/O and the threads that do it: a leaf that knows nothing of the engine."""

from iopool.errors import JobLost, PoolBusy, PoolClosed
from iopool.fs import Bytes, FileLock, FileSystem, Kind, LocalFileSystem, WritableFile
from iopool.lane import LaneMetrics
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
    "PoolBusy",
    "PoolClosed",
    "Ticket",
    "WorkerPool",
    "WritableFile",
]
