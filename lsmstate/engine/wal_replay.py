"""A store and its log: taken when it is opened, replayed strictly after what the newest epoch holds, checked.

With `durability="wal"` every write is also a record. A handle takes the log before it reads the head, so that it finds
all that was ever acknowledged; and before its first record it publishes the head anew, so that no handle before it can
publish what does not have these records. A state that has a log is replayed by whoever opens it to write; with
`durability="epoch"` what that handle writes is not logged. Read-only handles show the newest epoch and no record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from iopool import FileSystem
from lsmstate.engine import wal_rows
from lsmstate.engine.apply import add_rows, add_tombstone, advance, is_later
from lsmstate.engine.flush import make_room, reserve
from lsmstate.engine.identity import Identity
from lsmstate.engine.wal import WriteAheadLog
from lsmstate.engine.wal_chain import Segments
from lsmstate.engine.wal_frames import Record
from lsmstate.errors import CorruptionError, FencedError, LsmStateError, SchemaError
from lsmstate.manifest import names
from lsmstate.options import Options

if TYPE_CHECKING:
    from lsmstate.engine.core import Core


def check_durability(options: Options, *, detached: bool) -> None:
    """Raises unless a handle can do what the options ask of it."""
    if detached and options.durability == "wal":
        raise ValueError("durability='wal' is for handles that commit: who opens candidates has a source that replays")


@contextlib.contextmanager
def taken_log(
    fs: FileSystem, path: str, identity: Identity, options: Options, attempt: str, read_only: bool, detached: bool
) -> Iterator[WriteAheadLog | None]:
    """The log of a state that is opened to commit, taken from whoever had it before the head is read; None if it has
    none and needs none. Let go of again if opening fails."""
    directory = f"{path}/{names.LOG_DIR}"
    if read_only or detached or not (identity.logged or options.durability == "wal"):
        yield None
        return
    if not identity.logged:
        fs.make_dir(directory)
        fs.sync_dir(path)
    wal = WriteAheadLog(fs, directory, identity.store_id, attempt)
    try:
        yield wal
    except BaseException:
        wal.abandon()
        raise


def recover(core: Core, *, changed: bool = False) -> None:
    """Brings a handle that was just opened to where its log ends; not across a change of columns: records are told with
    those that their side had."""
    start = core.head.version.wal
    if core.wal is None:
        if start is not None and not (core.read_only or core.detached):
            raise CorruptionError(f"{core.path}/{names.LOG_DIR}", 0, "the log of the newest epoch", "no directory")
        return
    try:
        with core.write_lock:
            core.wal.begin(start)
            if changed and start is not None and any(r.kind == wal_rows.ROWS for r in core.wal.replay(start.position)):
                raise SchemaError(
                    f"{core.path}: rows in the write-ahead log have the columns of before; open the state with those, "
                    "make an epoch (snapshot_epoch), then open it with the new ones"
                )
            replay(core)
    except CorruptionError as error:
        if core.log.head().number != core.head.number:
            raise FencedError(f"{core.path}: another handle published meanwhile; open the state again") from error
        raise


def replay(core: Core) -> None:
    """Does again what the log holds after the newest epoch. Requires: the write lock, and nothing written since."""
    start = core.head.version.wal
    if core.wal is not None and start is not None:
        for record in core.wal.replay(start.position):
            _apply(core, record)
    core.replayed = core.moment()


def _apply(core: Core, record: Record) -> None:
    if record.kind == wal_rows.ROWS:
        side, parts, first = wal_rows.rows_in(record, core.sides)
        _check_next(core, record, first)
        make_room(core)
        reserve(core, sum(rows.size_bytes for rows in parts))
        add_rows(core, side, parts)
    elif record.kind == wal_rows.REMOVAL:
        removal = wal_rows.removal_in(record, core.sides)
        _check_next(core, record, removal.next_id)
        add_tombstone(core, removal.side, removal.start, removal.end)
    elif record.kind == wal_rows.WATERMARK:
        ts = wal_rows.watermark_in(record)
        if is_later(core, ts):
            advance(core, ts)
    else:
        raise wal_rows.unknown(record)


def _check_next(core: Core, record: Record, next_id: int) -> None:
    """Ids are given anew and must be those of the first time: callers know them, and marks name rows by them."""
    if next_id != core.working.next_id:
        raise record.damaged(f"a write at id {core.working.next_id}", next_id)


def log_bytes(core: Core) -> int:
    """What a handle that opened the state now would replay."""
    start = core.head.version.wal
    return 0 if core.wal is None or start is None else max(0, core.wal.written - start.position)


def log_problems(core: Core) -> Iterator[tuple[str, str]]:
    """What is wrong with the records after the newest epoch: paths, and what."""
    start = core.head.version.wal
    if start is None or core.detached:
        return
    segments = Segments(core.fs, f"{core.path}/{names.LOG_DIR}", core.store_id)
    try:
        chain = segments.chain(1 << 62, start)
        for path, frame in segments.records(chain.links, chain.end, start.position):
            record = frame.record(path)
            if record.kind == wal_rows.ROWS:
                wal_rows.rows_in(record, core.sides)
            elif record.kind == wal_rows.REMOVAL:
                wal_rows.removal_in(record, core.sides)
            elif record.kind == wal_rows.WATERMARK:
                wal_rows.watermark_in(record)
            else:
                raise wal_rows.unknown(record)
    except CorruptionError as error:
        if core.log.head().number == core.head.number:
            yield error.path, str(error)
    except (LsmStateError, OSError) as error:
        yield segments.directory, str(error)
