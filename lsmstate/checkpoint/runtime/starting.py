"""One start of a job at a time: what a driver has decided, it has also opened, before another may decide.

Otherwise a driver that pauses between the two would take a state back that the next one has moved on. The lock ends
with the process that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from time import monotonic

from iopool import FileSystem
from lsmstate.errors import CheckpointError

_WAIT_S = 30.0
_LOOK_S = 0.02


@contextmanager
def starting(fs: FileSystem, name: str, path: str, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Holds the job's directory while a driver starts. Raises CheckpointError if another starts for too long."""
    deadline, pause = monotonic() + wait_s, Event()
    while (lock := fs.lock(f"{path}/starting")) is None:
        if monotonic() > deadline:
            raise CheckpointError(
                f"job {name!r}: another driver has been starting it for {wait_s:g} s; stop that process, or wait for it"
            )
        pause.wait(_LOOK_S)
    try:
        yield
    finally:
        lock.release()
