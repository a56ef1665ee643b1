"""What belongs to one run of a pipeline, and is let go with it: its catalog, its pool, its driver."""

from __future__ import annotations

import threading
from contextlib import suppress

from iopool import WorkerPool
from lsmstate.checkpoint.catalog import Catalog
from lsmstate.checkpoint.runtime.driver import Driver

_POOL_CLOSE_S = 30.0


class Run:
    """One run. Any thread may release it, any number of times, once its driver has ended."""

    def __init__(self, catalog: Catalog, owns_catalog: bool, pool: WorkerPool) -> None:
        self.catalog, self.pool = catalog, pool
        self.driver: Driver | None = None
        self._owns_catalog, self._lock, self._released = owns_catalog, threading.Lock(), False

    def release(self) -> None:
        """Closes the pool and, if it is the run's own, the catalog."""
        with self._lock:
            if self._released:
                return
            self._released = True
            self.pool.close(_POOL_CLOSE_S)
            if self._owns_catalog:
                with suppress(Exception):  # what it had to say it has said
                    self.catalog.close()
