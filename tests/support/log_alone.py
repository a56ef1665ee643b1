"""A write-ahead log without a store: handles on it, records into it and out of it."""

from __future__ import annotations

from lsmstate.engine.wal import WriteAheadLog
from lsmstate.manifest.version import LogMark
from tests.support.simfs import SimFileSystem

KIND = 16
DIR = "/log"


def disk() -> SimFileSystem:
    """A disk with an empty directory for a log."""
    return SimFileSystem.of({DIR: None})


def opened(fs: SimFileSystem, start: LogMark | None = None, *, log_id: str = "mine") -> WriteAheadLog:
    """A new handle on the log, as of another process."""
    log = WriteAheadLog(fs.spawn(), DIR, log_id, "a")
    log.begin(start)
    return log


def put(log: WriteAheadLog, *payloads: bytes) -> list[int]:
    """Appends records, each acknowledged before the next; gives their positions."""
    positions = []
    for payload in payloads:
        positions.append(log.append(KIND, [payload[:2], memoryview(payload[2:])]))
        log.sync(positions[-1])
    return positions


def payloads(log: WriteAheadLog, after: int = 0) -> list[bytes]:
    """What is replayed after a position."""
    return [record.payload for record in log.replay(after)]


THREE = (b"first", b"", b"the third one")
