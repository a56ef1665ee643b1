"""The write-ahead log: records that are durable before anybody is told so, by one fsync for all who wait.

    log = WriteAheadLog(fs, directory, log_id, attempt)   # from now on nobody before us acknowledges anything
    log.begin()                                           # reads what they have left, and goes on after it
    position = log.append(kind, views)
    log.sync(position)                                    # durable; whoever waits meanwhile shares the next fsync
    for record in log.replay(after=position): ...
    log.truncate_before(position)

Threading: any thread may append and sync. Writers take turns for the write alone; the first that asks for an fsync does
it for all that was written until then, without holding up writers, and those who come meanwhile wait for the next.

Invariants: a segment is only ever appended to, by the handle that took its number; where a write has failed, the log
goes on in another segment. Before anything is acknowledged the log looks whether it is still this handle's (wal_claim).
A failed fsync ends the log. The highest segment is never removed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from iopool import Bytes, FileSystem
from lsmstate.engine.wal_chain import Link, Segments, begin_segment
from lsmstate.engine.wal_claim import Claim
from lsmstate.engine.wal_frames import END, KIND_MAX, KIND_MIN, Record, encode, encode_about
from lsmstate.errors import CorruptionError, FencedError, SnapshotExpired, StoreClosedError, StorePoisonedError
from lsmstate.manifest.version import LogMark


class WriteAheadLog:
    """A log in a directory of its own, which exists. Creating one takes it over from whoever had it."""

    def __init__(self, fs: FileSystem, directory: str, log_id: str, attempt: str) -> None:
        self._fs, self._attempt = fs, attempt
        self._segments = Segments(fs, directory, log_id)
        self._writing = threading.Lock()
        self._turn = threading.Condition()
        self._syncing = False
        self._failed: Exception | None = None
        self._closed = False
        self._torn = False  # the segment ends with what a failed write has left
        self._links: list[Link] = []
        self._written = self._synced = 0
        self._offset = 0  # of the next frame
        self._claim = Claim(fs, self._segments, self.fail)
        self._file = self._claim.take_over()

    @property
    def position(self) -> int:
        """All up to here is durable."""
        return self._synced

    @property
    def written(self) -> int:
        """Where the next record will begin."""
        return self._written

    def begin(self, start: LogMark | None = None) -> None:
        """Finds what was written before, and goes on after it. `start`: where it must be found to go on from."""
        try:
            self._begin(start)
        except BaseException:
            self._closed = True
            self.abandon()
            raise

    def append(self, kind: int, views: Sequence[Bytes]) -> int:
        """Adds a record, to be made durable by `sync`; gives its position. If it raises, nothing was added."""
        if not KIND_MIN <= kind <= KIND_MAX:
            raise ValueError(f"the kind of a record is a number from {KIND_MIN} to {KIND_MAX}, not {kind!r}")
        with self._writing:
            self._check()
            if self._torn:
                self._roll()
            self._claim.check()  # asked again when it is synced; here it spares the next handle most rows in doubt
            seeds = self._segments.seeds(self._links[-1].number)
            parts, size = encode(seeds, self._offset, kind, views, self._written, self._synced)
            try:
                self._file.write(parts)
                self._offset += size
                self._written += size
            except BaseException:
                self._torn = True
                raise
            return self._written

    def sync(self, position: int) -> None:
        """Returns when all up to a position is durable and the log is still this handle's; else it raises."""
        with self._turn:
            while True:
                if self._synced >= position:
                    return
                self._check()
                if not self._syncing:
                    self._syncing = True
                    file, reach = self._file, self._written
                    break
                self._turn.wait()
        error: Exception | None = None
        done = False
        try:
            file.sync()
            self._claim.check()
            done = True
        except (OSError, FencedError) as caught:
            error = caught
            raise
        finally:
            with self._turn:
                self._syncing = False
                self._failed = self._failed or error
                if done:
                    self._synced = max(self._synced, reach)
                self._turn.notify_all()

    def mark(self) -> LogMark:
        """A place in the log from which a state that holds all records so far goes on: durable, and where a segment
        begins. Requires: nobody appends meanwhile."""
        with self._writing:
            self._check()
            self._claim.check()
            if self._torn or self._written != self._links[-1].base:
                self._roll()
            return LogMark(self._links[-1].number, self._links[-1].base)

    def roll(self) -> None:
        """Goes on in another segment, so that this one can be removed once nobody needs it."""
        with self._writing:
            self._roll()

    def replay(self, after: int) -> Iterator[Record]:
        """All records that end after a position, oldest first. Raises if some of them are gone, or damaged."""
        with self._writing:
            links, end = tuple(self._links), self._written
        if after > end:
            raise CorruptionError(self._segments.path(links[-1].number), 0, f"records up to position {after}", end)
        if after < links[0].base:
            raise SnapshotExpired(
                f"{self._segments.directory}: the log begins at position {links[0].base}, what came after {after} was "
                "dropped; go on from a later checkpoint"
            )
        return (frame.record(path) for path, frame in self._segments.records(links, end, after))

    def truncate_before(self, position: int) -> None:
        """Removes segments with no record that ends after a position."""
        with self._writing:
            keep = self._links[0].number
            for link in self._links[1:]:
                if link.base <= position:
                    keep = link.number
        self.remove_before(keep)

    def remove_before(self, number: int) -> None:
        """Removes the segments below a number."""
        with self._writing:
            self._check()
            self._claim.check()  # else what to keep is for the other one to say
            number = min(number, self._links[-1].number)
            self._links = [link for link in self._links if link.number >= number]
        for older in self._segments.numbers():  # ascending: who was overtaken looks for its own, then for the next
            if older < number:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.unlink(self._segments.path(older))

    def check_owner(self) -> None:
        """Raises FencedError if another handle has taken the log."""
        self._claim.check()

    def fail(self, error: Exception) -> None:
        """Ends the log: what was written and what its writer has done of it are no longer the same."""
        with self._turn:
            self._failed = self._failed or error
            self._turn.notify_all()

    def close(self) -> None:
        """Ends the handle; says so in the segment, which tells later damage from what a crash leaves."""
        with self._writing:
            if self._closed:
                return
            sound = self._failed is None and not self._torn and bool(self._links)
            if sound and self._written != self._links[-1].base:
                with contextlib.suppress(OSError, FencedError, StorePoisonedError):
                    self.sync(self._written)
                    seeds = self._segments.seeds(self._links[-1].number)
                    self._file.write(encode_about(seeds, self._offset, END, {}, self._written))
                    self._file.sync()
            with self._turn:
                self._closed = True
                self._turn.notify_all()
                while self._syncing:
                    self._turn.wait()
            with contextlib.suppress(OSError):
                self._file.close()

    def abandon(self) -> None:
        """Lets go of the file and nothing else: in a process that was forked from the one that has the log."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _begin(self, start: LogMark | None) -> None:
        chain = self._segments.chain(self._claim.number, start)
        tip = chain.links[-1] if chain.links else None
        carried = [frame for _, frame in self._segments.records(chain.links[-1:], chain.end, chain.synced)]
        link = Link(self._claim.number, tip.number if tip else 0, chain.synced, chain.end)
        self._offset = begin_segment(self._file, self._segments, self._attempt, link, carried)
        self._links = [*chain.links, link]
        self._written = self._synced = chain.end

    def _roll(self) -> None:
        """Requires: the turn to write."""
        self._check()
        self.sync(self._written)  # so nobody is at the old file any more
        file = self._claim.take_next()
        link = Link(self._claim.number, self._links[-1].number, self._written, self._written)
        try:
            offset = begin_segment(file, self._segments, self._attempt, link, [])
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
            raise
        with self._turn:
            old, self._file = self._file, file
        self._links.append(link)
        self._offset, self._torn = offset, False
        with contextlib.suppress(OSError):  # all of it was synced
            old.close()

    def _check(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self._segments.directory}: the log is closed; open it again")
        if isinstance(self._failed, FencedError):
            raise FencedError(str(self._failed))
        if self._failed is not None:
            raise StorePoisonedError(
                f"{self._segments.directory}: the log has failed ({self._failed}); close it, look after the disk, and "
                "reopen: what was acknowledged is there"
            ) from self._failed
