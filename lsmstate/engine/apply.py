"""What a write does to the rows in memory: the same when it is made and when it is replayed from a log.

Requires, for all of it: the write lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lsmstate.engine.flush import spill_if_full
from lsmstate.engine.intake import Rows
from lsmstate.engine.memtable import Piece
from lsmstate.refs import Tombstone, with_tombstone

if TYPE_CHECKING:
    from lsmstate.engine.core import Core


def add_rows(core: Core, side: int, parts: Sequence[Rows]) -> None:
    """Puts rows into the memtable, with the next ids."""
    kind = core.sides[side]
    for rows in parts:
        first = core.working.next_id
        ids = np.arange(first, first + len(rows), dtype=np.uint64)
        piece = Piece(side, kind, rows, ids)
        planned = core.memtable.plan(piece, kind)
        with core.swap_lock:
            core.memtable.put(piece, planned)
            core.working = core.working.after(first + len(rows))
        spill_if_full(core)


def add_tombstone(core: Core, side: int, start: int, end: int) -> None:
    """Kills the rows of a side with start <= ts < end that are there now."""
    at = core.working.next_id
    core.swap(next_id=at + 1, tombstones=with_tombstone(core.working.tombstones, Tombstone(side, start, end, at)))


def advance(core: Core, ts: int) -> None:
    """Moves the watermark, which is further."""
    core.swap(watermark=ts)


def is_later(core: Core, ts: int) -> bool:
    """Whether a watermark is further than the present one."""
    return core.working.watermark is None or ts > core.working.watermark
