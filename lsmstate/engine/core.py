"""The heart of an open store: what it holds now, and the locks around it.

What readers see is a handful of immutable things (a version, sealed memtables, pieces), swapped whole under the
swap lock, which is held for microseconds and never during I/O. Writers come one at a time, under the write lock. So
a snapshot costs a few pointers, readers never wait for a flush, and a writer never waits for a reader.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from iopool import MemoryAccount, MemoryController, WorkerPool
from lsmstate.engine.compactor import Compactor
from lsmstate.engine.files import FileSources
from lsmstate.engine.flush import Sealed, relieve
from lsmstate.engine.garbage import Collector
from lsmstate.engine.identity import Identity
from lsmstate.engine.memtable import Memtable, Piece
from lsmstate.engine.pins import Pin, take_pin
from lsmstate.engine.poison import PoisonableFileSystem
from lsmstate.engine.probe_stats import ProbeStats
from lsmstate.engine.view import Source, View
from lsmstate.engine.wal import WriteAheadLog
from lsmstate.errors import FencedError, SnapshotExpired, StoreClosedError, StorePoisonedError
from lsmstate.manifest import names
from lsmstate.manifest.log import Head, Manifest, ManifestLog
from lsmstate.manifest.version import Version
from lsmstate.options import Options
from lsmstate.refs import Tombstone
from lsmstate.sstable.cache import FileCache

_CLOSE_SECONDS = 30.0
Moment = tuple[int, int | None, tuple[Tombstone, ...]]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a detached handle starts: a candidate (None is an empty state), and the line that it works on."""

    candidate: str | None
    line: int


class Core:
    """The state of one handle. Modules of the engine act on it; users see `StateStore`."""

    def __init__(
        self,
        fs: PoisonableFileSystem,
        path: str,
        identity: Identity,
        options: Options,
        pool: WorkerPool,
        cache: FileCache,
        attempt: str,
        read_only: bool,
        start: Start | None = None,
        memory: MemoryController | None = None,
        wal: WriteAheadLog | None = None,
    ) -> None:
        self.fs, self.path, self.options = fs, path, options
        self.sides, self.store_id = identity.wanted or identity.sides, identity.store_id
        self.sides_by_number = dict(enumerate(self.sides))
        self.sst_directory = f"{path}/{names.SST_DIR}"
        self.pool, self.cache, self.attempt = pool, cache, attempt
        self.read_only = read_only
        self.log = ManifestLog(fs, path, identity.store_id, len(identity.sides))
        self.write_lock = threading.RLock()
        self.swap_lock = threading.Lock()
        self._pin: Pin | None = None
        self.detached = start is not None
        if start is not None:
            self.head = Head(0, None if start.candidate is None else self.log.read(start.candidate))
            self.working = replace(self.head.version, line=start.line)
        else:
            self.head = self._pinned_head() if read_only else self.log.head()
            self.working = self.head.version
        self.wal = wal
        self.logs = wal is not None and options.durability == "wal"
        self.took_over = False  # this handle has published
        self.replayed: Moment | None = None  # how far the log has brought it
        self.memory = self._account(memory)
        self.flushed_bytes = 0
        self.probes = ProbeStats()
        self.memtable = Memtable()
        self.sealed: tuple[Sealed, ...] = ()
        self.prepared: Manifest | None = None
        self.fenced: FencedError | None = None
        self.views: weakref.WeakSet[View] = weakref.WeakSet()
        self.collector = Collector()
        self.compactor = Compactor(self)
        self._sources = FileSources(self)
        self._numbers = itertools.count(1)
        self._pid = os.getpid()
        self._closed = False

    def _account(self, memory: MemoryController | None) -> MemoryAccount | None:
        if memory is None or self.read_only:
            return None
        account, me = memory.account(self.path), weakref.ref(self)

        def pressed() -> None:
            core = me()
            if core is not None:
                relieve(core)

        account.on_pressure(pressed)
        return account

    def forget_rows(self) -> None:
        """Drops all that was written and is in memory. Requires: the write lock."""
        with self.swap_lock:
            held = [*(sealed.memtable for sealed in self.sealed), self.memtable]
            self.sealed, self.memtable = (), Memtable()
        if self.memory is not None:
            self.memory.release(sum(memtable.size_bytes for memtable in held))

    def _pinned_head(self) -> Head:
        """The newest publication, protected as long as this handle lives."""
        while True:
            head = self.log.head()
            if head.manifest is None:
                return head
            self._pin = take_pin(self.fs, self.path, head.manifest.name, self.attempt)
            if self.fs.kind(f"{self.log.directory}/{names.head(head.number)}") is not None:
                return head
            if self._pin is not None:
                self._pin.release()

    # ---- reading

    def view(self, *, pinned: bool = False) -> View:
        """All rows of this moment. A pinned view keeps its files, whoever collects."""
        self.check_open()
        pin = None
        if pinned:
            with self.swap_lock:
                manifest = self.head.manifest
            pin = self.pin(manifest)
        with self.swap_lock:
            version, sealed = self.working, self.sealed
            pieces = [piece for part in sealed for piece in part.memtable.pieces()]
            pieces += self.memtable.pieces()
        return self._view(version, pieces, pin.release if pin else None, None)

    def pin(self, manifest: Manifest | None) -> Pin | None:
        """Protects the files of a manifest; None where the state cannot be written. Raises if it was retired."""
        pin = take_pin(self.fs, self.path, manifest.name if manifest else None, self.attempt)
        if manifest is not None and self.fs.kind(f"{self.log.directory}/{manifest.name}") is None:
            if pin is not None:
                pin.release()
            raise SnapshotExpired(
                f"{self.path}: epoch {manifest.version.epoch} was retired by another handle; reopen to read the newest"
            )
        return pin

    def version_view(self, version: Version, release: Callable[[], None] | None) -> View:
        """The rows of a version, as committed."""
        return self._view(version, [], release, version.epoch)

    def _view(
        self, version: Version, pieces: list[Piece], release: Callable[[], None] | None, epoch: int | None
    ) -> View:
        sources: list[Source] = [*self._sources.of(version), *pieces]
        view = View(
            self.sides,
            sources,
            version.tombstones,
            version.watermark,
            self.options.batch_rows,
            frozenset(version.files),
            release,
            epoch,
            self.probes,
        )
        with self.swap_lock:
            self.views.add(view)
        return view

    def files_in_use(self) -> frozenset[str]:
        """The files of all views of this handle that are alive."""
        with self.swap_lock:
            return frozenset[str]().union(*(view.files for view in self.views))

    # ---- writing

    def new_name(self, kind: str, epoch: int | None = None) -> str:
        """A file name that nobody has or will have."""
        if epoch is None:
            epoch = self.working.epoch + 1
        return str(names.Name(epoch, self.working.line, self.attempt, next(self._numbers), kind))

    def moment(self) -> Moment:
        """Changes with every write: the next id, the watermark, the tombstones."""
        return self.working.next_id, self.working.watermark, self.working.tombstones

    def next_number(self) -> int:
        """The next number of a file of this handle."""
        return next(self._numbers)

    def swap(self, **changes: object) -> None:
        """Changes the working version. Requires: the write lock."""
        with self.swap_lock:
            self.working = replace(self.working, **changes)  # type: ignore[arg-type]

    # ---- whether it may

    def check_open(self) -> None:
        """Raises StoreClosedError unless this process may use the handle."""
        if self._closed:
            raise StoreClosedError(f"{self.path}: the store is closed; open it again")
        if os.getpid() != self._pid:
            raise StoreClosedError(f"{self.path}: the store was opened before a fork; open it again in this process")

    def check_writable(self) -> None:
        """Raises unless this handle can still write."""
        self.check_open()
        if self.read_only:
            raise StoreClosedError(f"{self.path}: opened read-only; open it with read_only=False to write")
        if self.fenced is not None:
            raise FencedError(str(self.fenced))
        if self.fs.poison is not None:
            raise StorePoisonedError(
                f"{self.path}: an fsync failed ({self.fs.poison}); close the store, look after the disk, and reopen: "
                "the last committed epoch is there"
            ) from self.fs.poison

    @contextlib.contextmanager
    def fencing(self) -> Iterator[None]:
        """Remembers that another handle has the log, if that is what comes to light."""
        try:
            yield
        except FencedError as error:
            self.fenced = self.fenced or error
            raise

    def mark_closed(self) -> bool:
        """Closes for all callers; False if it was closed before."""
        was, self._closed = self._closed, True
        if self.wal is not None and not was:
            self._close_log(self.wal)
        if self.memory is not None:
            self.memory.close()
        if self._pin is not None:
            pin, self._pin = self._pin, None
            pin.release()
        return not was

    def _close_log(self, wal: WriteAheadLog) -> None:
        if os.getpid() != self._pid:
            wal.abandon()
        elif self.write_lock.acquire(timeout=_CLOSE_SECONDS):  # a writer may be in the middle of a record
            try:
                wal.close()
            finally:
                self.write_lock.release()
