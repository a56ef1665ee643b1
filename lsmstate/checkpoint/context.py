"""What a runtime hands to an operator when it starts it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from iopool import MemoryController, WorkerPool


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """state_dir: of this operator alone. memory, pool: shared by the operators of a process; each has its own unless
    told. safe_epoch: the epoch to go on from; the last committed one unless told."""

    state_dir: str | os.PathLike[str]
    memory: MemoryController | None = None
    pool: WorkerPool | None = None
    safe_epoch: int | None = None
