"""Flush: a sealed memtable becomes one SSTable, in the spill lane of the pool.

A sealed memtable stays readable until its file stands in the version; if its flush fails it stays sealed, readable,
and is tried again by the next flush, under a new name.

Where a handle shares a `MemoryController` with others, rows are reserved there before they are added and released when
their file stands in the version. Above the soft limit a store that holds its share seals and spills; at the hard limit
a writer waits, and meanwhile all stores that hold something spill it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iopool import JobLost, MemoryTimeout, Ticket
from lsmstate.engine.memtable import Memtable
from lsmstate.errors import BackpressureTimeout
from lsmstate.refs import FileRef
from lsmstate.sstable.writer import write_sstable

if TYPE_CHECKING:
    from lsmstate.engine.core import Core

_SEALED_MAX = 2  # memtables waiting for the disk; beyond that, appends wait for it too


@dataclass(slots=True, eq=False)
class Sealed:
    """A memtable that takes no more rows, and the flush under way for it."""

    memtable: Memtable
    ticket: Ticket[FileRef] | None = None


def seal(core: Core) -> None:
    """Starts a new memtable and the flush of the present one. Requires: the write lock."""
    with core.swap_lock:
        if not core.memtable:
            return
        sealed = Sealed(core.memtable)
        core.sealed = (*core.sealed, sealed)
        core.memtable = Memtable()
    _start(core, sealed)


def make_room(core: Core) -> None:
    """Waits while too many sealed memtables wait for the disk. Requires: the write lock.

    Raises what the disk raises, before the caller has added anything.
    """
    while len(core.sealed) > _SEALED_MAX:
        _finish(core, core.sealed[0])


def reserve(core: Core, size_bytes: int) -> None:
    """Waits for memory that rows will take. Requires: the write lock. Raises BackpressureTimeout; nothing is added."""
    account = core.memory
    if account is None:
        return
    _settle_done(core)
    if account.should_spill():
        seal(core)
    try:
        account.reserve(size_bytes)
    except MemoryTimeout as error:
        raise BackpressureTimeout(f"{core.path}: {error}") from error


def relieve(core: Core) -> None:
    """Spills what a handle holds, because somebody waits for memory: called from any thread, never waits."""
    if core.write_lock.acquire(blocking=False):  # else its writer is at work, and will see to it
        try:
            seal(core)
            _settle_done(core)
        finally:
            core.write_lock.release()


def _settle_done(core: Core) -> None:
    """Lets go of sealed memtables whose files are written; starts those flushes again that have failed."""
    for sealed in core.sealed:
        if sealed.ticket is not None and sealed.ticket.done():
            if _succeeded(sealed.ticket):
                _finish(core, sealed)
            elif core.fs.poison is None:
                _start(core, sealed)


def spill_if_full(core: Core) -> None:
    """Seals a memtable that has grown large. Requires: the write lock."""
    if core.memtable.size_bytes >= core.options.memtable_bytes:
        seal(core)


def flush(core: Core) -> None:
    """Makes all rows durable in files. Requires: the write lock. Raises the first error; nothing is lost by it."""
    seal(core)
    for sealed in core.sealed:
        _finish(core, sealed)


def _start(core: Core, sealed: Sealed) -> None:
    name = core.new_name("sst")
    sealed.ticket = core.pool.submit("spill", lambda: _write(core, sealed, name))


def _finish(core: Core, sealed: Sealed) -> None:
    """Waits for a flush and puts the file in the memtable's place. One that failed in the background is tried again."""
    failed_before = sealed.ticket is not None and sealed.ticket.done() and not _succeeded(sealed.ticket)
    if sealed.ticket is None or (failed_before and core.fs.poison is None):
        _start(core, sealed)
    assert sealed.ticket is not None
    try:
        ref = sealed.ticket.result()
    except JobLost:  # its thread died; what it left behind has a name of its own
        _start(core, sealed)
        ref = sealed.ticket.result()
    with core.swap_lock:
        core.working = core.working.with_file(ref)
        core.sealed = tuple(other for other in core.sealed if other is not sealed)
    core.flushed_bytes += ref.size_bytes
    if core.memory is not None:
        core.memory.release(sealed.memtable.size_bytes)


def _succeeded(ticket: Ticket[FileRef]) -> bool:
    try:
        ticket.result(0)
    except Exception:  # whatever it was, it was told to nobody yet: the flush is tried again
        return False
    return True


def _write(core: Core, sealed: Sealed, name: str) -> FileRef:
    with outliving():
        runs = sealed.memtable.runs(core.sides)
        return write_sstable(core.fs, core.sst_directory, name, core.sides_by_number, runs, core.working.epoch + 1)


@contextlib.contextmanager
def outliving() -> Iterator[None]:
    """In a job: what would end its thread, or the process, must not end the caller that waits for it."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise JobLost(f"a job of the engine was ended by {type(error).__name__}; repeat the call") from error
