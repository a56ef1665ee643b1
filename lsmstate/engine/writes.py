"""What changes the rows of a state: appends, removals, and the watermark. Writers come one at a time."""

from __future__ import annotations

import numpy as np

from lsmstate.engine.core import Core
from lsmstate.engine.flush import make_room, reserve, spill_if_full
from lsmstate.engine.intake import Batch, read_rows
from lsmstate.engine.memtable import Piece
from lsmstate.engine.view import check_side
from lsmstate.keys import TS_MAX, TS_MIN, time_us
from lsmstate.refs import Tombstone, with_tombstone


def append(core: Core, side: int, batch: Batch) -> int:
    """Adds rows to a side; gives the id of the first, the others follow."""
    core.check_writable()
    check_side(core.sides, side)
    kind = core.sides[side]
    parts = read_rows(kind, batch)
    with core.write_lock:
        core.check_writable()
        make_room(core)
        reserve(core, sum(rows.size_bytes for rows in parts))
        begun = core.working.next_id
        for rows in parts:
            first = core.working.next_id
            ids = np.arange(first, first + len(rows), dtype=np.uint64)
            piece = Piece(side, kind, rows, ids)
            planned = core.memtable.plan(piece, kind)
            with core.swap_lock:
                core.memtable.put(piece, planned)
                core.working = core.working.after(first + len(rows))
            spill_if_full(core)
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
        at = core.working.next_id
        core.swap(next_id=at + 1, tombstones=with_tombstone(core.working.tombstones, Tombstone(side, start, end, at)))


def advance_watermark(core: Core, ts: int) -> None:
    """Retires rows with ts <= watermark - the side's retention, unless the watermark would go back."""
    core.check_writable()
    ts = time_us(ts, "a watermark")
    if not TS_MIN <= ts <= TS_MAX:
        raise ValueError(f"a watermark is a time in microseconds, not {ts!r}")
    with core.write_lock:
        core.check_writable()
        if core.working.watermark is None or ts > core.working.watermark:
            core.swap(watermark=ts)
