"""How a checkpoint comes to count: its manifest is saved, the catalog takes it, and what it leaves behind is removed.

Belongs to the thread of the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic

from lsmstate.checkpoint.catalog import Catalog
from lsmstate.checkpoint.coordinator.phases import InProgress, OperatorSnapshot
from lsmstate.checkpoint.manifest.manifest import COMMITTED, CheckpointManifest, failed
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.checkpoint.runtime.assembly import assemble
from lsmstate.checkpoint.runtime.graph import Graph
from lsmstate.checkpoint.runtime.recovery import commit
from lsmstate.errors import CatalogError

_BACKOFF_S = 0.2  # before a catalog that did not answer is asked again
_log = logging.getLogger("lsmstate.checkpoint")


class Completion:
    """The checkpoints of one run, after all tasks have answered. last: the newest one that counts."""

    def __init__(
        self,
        name: str,
        graph: Graph,
        catalog: Catalog,
        incarnation: int,
        line: int,
        store: ManifestStore,
        last: CheckpointManifest | None,
        retain: int,
    ) -> None:
        self.name, self.last = name, last
        self._graph, self._catalog, self._store = graph, catalog, store
        self._incarnation, self._line, self._retain = incarnation, line, retain
        self._waiting: CheckpointManifest | None = None
        self._due = 0.0

    def next_id(self) -> int:
        """An id that no attempt has had."""
        return self._catalog.next_checkpoint_id(self.name, self._incarnation)

    def save(self, running: InProgress, snapshots: Mapping[str, OperatorSnapshot], staged: Mapping[str, bytes]) -> None:
        """Makes the manifest of a checkpoint durable; then the catalog is asked."""
        ids = (running.id, running.epoch, self._incarnation)
        manifest, packed = assemble(self._graph, *ids, snapshots, staged, self.last)
        self._waiting, self._due = self._store.save(manifest, packed.sidecar), 0.0

    def try_commit(self) -> CheckpointManifest | None:
        """Asks the catalog to take the checkpoint that waits, if it is time; gives it once it counts."""
        manifest = self._waiting
        if manifest is None or monotonic() < self._due:
            return None
        try:
            commit(self._catalog, self.name, self._incarnation, manifest, self._line)
        except CatalogError as error:
            _log.warning("job %s: checkpoint %s waits: %s", self.name, manifest.checkpoint_id, error)
            self._due = monotonic() + _BACKOFF_S
            return None
        self._waiting, self.last = None, manifest
        return manifest

    def settle(self) -> None:
        """All sinks have committed the newest checkpoint: notes it, and removes those that are too old."""
        assert self.last is not None
        told = {sink: COMMITTED for sink in self.last.sink_epochs if sink in self._graph.sinks}
        self.last = replace(self.last, sink_commit_statuses={**self.last.sink_commit_statuses, **told})
        self._store.update(self.last)
        try:
            rows = [row for row in self._catalog.checkpoints(self.name) if row.status == "committed"]
            kept, old = rows[-self._retain :], rows[: -self._retain]
            if old:
                self._catalog.forget(self.name, self._incarnation, [row.checkpoint_id for row in old])
        except CatalogError as error:  # it tells of more than is kept; the next checkpoint sees to it
            _log.warning("job %s: %s", self.name, error)
            return
        self._store.prune(1, keep=[row.checkpoint_id for row in kept])

    def note_failure(self, sink: str, error: Exception) -> None:
        """A sink could not commit."""
        assert self.last is not None
        if sink in self.last.sink_epochs:
            told = {**self.last.sink_commit_statuses, sink: failed(str(error))}
            self._store.update(replace(self.last, sink_commit_statuses=told))
