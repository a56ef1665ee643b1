"""What a runtime hands to an operator when it starts it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iopool import MemoryController, WorkerPool

if TYPE_CHECKING:
    from lsmstate.checkpoint.tables.table_set import TableSet


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """state_dir: of this operator alone. memory, pool: shared by the operators of a process; each has its own unless
    told. safe_epoch: the epoch to go on from; the last committed one unless told. candidate: what the operator told of
    it, where it was made durable and the commit did not come. retain: how many epochs are kept at least. tables: for
    operators that keep their state in tables. saved: the bytes that the operator's `state` gave.
    table_offsets: what its `table_offsets` gave, by table."""

    state_dir: str | os.PathLike[str]
    memory: MemoryController | None = None
    pool: WorkerPool | None = None
    safe_epoch: int | None = None
    candidate: str | None = None
    retain: int | None = None
    tables: TableSet | None = None
    saved: bytes | None = None
    table_offsets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
