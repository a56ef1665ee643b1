"""What changes the rows of a state: appends, removals, and the watermark. Writers come one at a time.

Where a write is logged it is added to the log and to the rows in memory under the write lock, and made durable after
that, without it: writers that wait for the disk share an fsync. It can be read before it is durable, and is
acknowledged after.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from iopool import Bytes
from lsmstate.engine import wal_rows
from lsmstate.engine.apply import add_rows, add_tombstone, advance, is_later
from lsmstate.engine.core import Core
from lsmstate.engine.epochs import take_over
from lsmstate.engine.flush import make_room, reserve
from lsmstate.engine.intake import Batch, read_rows
from lsmstate.engine.view import check_side
from lsmstate.keys import TS_MAX, TS_MIN, time_us


def append(core: Core, side: int, batch: Batch) -> int:
    """Adds rows to a side; gives the id of the first, the others follow."""
    core.check_writable()
    check_side(core.sides, side)
    kind = core.sides[side]
    parts = read_rows(kind, batch)
    size_bytes = sum(rows.size_bytes for rows in parts)
    with core.write_lock:
        core.check_writable()
        make_room(core)
        reserve(core, size_bytes)
        begun = core.working.next_id
        if not core.logs or not parts:
            add_rows(core, side, parts)
            return begun
        with _unreserved_on_failure(core, size_bytes):
            views = wal_rows.rows_record(side, kind, batch, begun)
            position = _logged(core, wal_rows.ROWS, views, lambda: add_rows(core, side, parts))
    _acknowledge(core, position)
    return begun


def remove(core: Core, side: int, start: int, end: int) -> None:
    """Removes the rows of a side with start <= ts < end that are there now."""
    core.check_writable()
    check_side(core.sides, side)
    start, end = time_us(start, "start"), time_us(end, "end")
    if not TS_MIN <= start < end <= TS_MAX + 1:
        raise ValueError(f"remove needs start < end, both in microseconds, not {start!r} and {end!r}")
    with core.write_lock:
        core.check_writable()
        if not core.logs:
            add_tombstone(core, side, start, end)
            return
        views = wal_rows.removal_record(side, start, end, core.working.next_id)
        position = _logged(core, wal_rows.REMOVAL, views, lambda: add_tombstone(core, side, start, end))
    _acknowledge(core, position)


def advance_watermark(core: Core, ts: int) -> None:
    """Retires rows with ts <= watermark - the side's retention, unless the watermark would go back."""
    core.check_writable()
    ts = time_us(ts, "a watermark")
    if not TS_MIN <= ts <= TS_MAX:
        raise ValueError(f"a watermark is a time in microseconds, not {ts!r}")
    with core.write_lock:
        core.check_writable()
        if not is_later(core, ts):
            return
        if not core.logs:
            advance(core, ts)
            return
        position = _logged(core, wal_rows.WATERMARK, wal_rows.watermark_record(ts), lambda: advance(core, ts))
    _acknowledge(core, position)


def _logged(core: Core, kind: int, views: list[Bytes], apply: Callable[[], None]) -> int:
    """Logs a write and does it; gives its position. Requires: the write lock. Both happen, or the log ends."""
    assert core.wal is not None
    take_over(core)
    before = core.wal.written
    try:
        with core.fencing():
            position = core.wal.append(kind, views)
        apply()
    except BaseException:
        if core.wal.written != before:
            core.wal.fail(RuntimeError("a write was logged and not done"))
        raise
    return position


def _acknowledge(core: Core, position: int) -> None:
    """Waits until a write is durable, without the write lock."""
    assert core.wal is not None
    try:
        with core.fencing():
            core.wal.sync(position)
    except OSError as error:
        core.fs.poison = core.fs.poison or error  # it is in memory, and whether on disk nobody can tell
        raise


@contextlib.contextmanager
def _unreserved_on_failure(core: Core, size_bytes: int) -> Iterator[None]:
    """Gives memory back that was reserved for rows that were not added."""
    before = core.working.next_id
    try:
        yield
    except BaseException:
        if core.memory is not None and core.working.next_id == before:
            core.memory.release(size_bytes)
        raise
