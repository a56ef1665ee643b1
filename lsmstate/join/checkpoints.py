"""Checkpoints of a join on Spark: which epochs of its state the catalog knows, with the offsets of their sources.

Spark decides when an epoch is complete, and the state on disk is the truth; a checkpoint tells of both what is needed
to go back: the candidate of every partition with its files, the watermark, and where the sources stood. It is saved in
the home under `checkpoints/`, then committed in the catalog. What a driver that died did not come to is made from disk
by the next one: offsets are learnt from where the next batch began, from a manifest that was saved and not committed,
or are told to be unknown. Checkpoints whose epoch was retired are forgotten.
Threading: one thread. Whatever it raises may be tried again: nothing is counted twice.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lsmstate.checkpoint.catalog import Catalog, CheckpointRow, JobKind, JobRow
from lsmstate.checkpoint.manifest.document import manifest_name
from lsmstate.checkpoint.manifest.lsm_files import lsm_state
from lsmstate.checkpoint.manifest.manifest import COMMITTED, CheckpointManifest, ConnectorCheckpoint, OperatorState
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.engine.identity import read_identity
from lsmstate.errors import CatalogError, EpochError, LsmStateError
from lsmstate.join.barrier import read_barrier
from lsmstate.join.history import History, history_of
from lsmstate.join.home import CHECKPOINTS, Home, is_home
from lsmstate.join.spec import JoinSpec
from lsmstate.manifest import names

KIND: JobKind = "spark"
OFFSET = "offset"  # of a source, as JSON: the only key of its offsets
UNKNOWN = "offsets"  # in the metadata of a source whose offsets nobody knows
_HEARD_MAX = 1000
_IDS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Heard:
    """What Spark tells of a batch that has ended. Offsets are JSON by source, None where a source had not begun."""

    run: str
    epoch: int
    line: int
    starts: Mapping[str, str | None]
    ends: Mapping[str, str | None]
    sink: str


class Checkpoints:
    """The checkpoints of one job, as one driver makes them. `open_catalog` is asked whenever there is no catalog."""

    def __init__(self, home: Home, spec: JoinSpec, interval_ms: int, open_catalog: Callable[[], Catalog]) -> None:
        self._home, self._job, self._partitions, self._interval_ms = home, spec.job, spec.partitions, interval_ms
        self._told = spec.describe()
        self._open = open_catalog
        self._store = ManifestStore(home.fs, f"{home.path}/{CHECKPOINTS}")
        self._catalog: Catalog | None = None
        self._run: str | None = None
        self._incarnation = 0
        self._last_ms: int | None = None  # when the last checkpoint's epoch began
        self._latest = 0  # the last epoch that the catalog knows
        self._newest: Heard | None = None
        self._offsets: OrderedDict[tuple[int, int], Mapping[str, str | None]] = OrderedDict()

    def register(self) -> None:
        """Makes the job known before its first batch, if it is not."""
        catalog = self._catalog_now()
        if catalog.job(self._job) is None:
            self._register(catalog)

    def hear(self, heard: Heard) -> None:
        """Learns of a batch. Asks nobody."""
        self._learn(heard.line, heard.epoch - 1, heard.starts, is_sure=False)
        self._learn(heard.line, heard.epoch, heard.ends)
        if self._newest is None or (heard.line, heard.epoch) >= (self._newest.line, self._newest.epoch):
            self._newest = heard

    def is_of(self, run: str) -> bool:
        """Whether the newest batch that was heard of belongs to a run of the query."""
        return self._newest is not None and self._newest.run == run

    def catch_up(self, *, is_over: bool = False) -> list[int]:
        """Completes what is due by now; the newest epoch in any case if the query `is_over`. Gives the epochs."""
        heard = self._newest
        if heard is None or (heard.run == self._run and heard.epoch <= self._latest):
            return []
        if self._run == heard.run and not is_over and not self._is_due(self._begun_ms(heard)):
            return []
        catalog = self._catalog_now()
        history = history_of(self._home, self._partitions)
        if history.line.number != heard.line:
            return []  # the state was taken back meanwhile: that line is left behind
        if self._run != heard.run:
            self._enter(catalog, history, heard)
        done = []
        for epoch in history.readable:
            if not self._latest < epoch <= heard.epoch:
                continue
            if (is_over and epoch == heard.epoch) or self._is_due(history.barriers[epoch].timestamp_ms):
                self._complete(catalog, history, heard, epoch)
                done.append(epoch)
        if done:
            self._forget_retired(catalog, history)
        return done

    def lose_catalog(self) -> None:
        """Lets the catalog go; the next call opens it anew."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    # ---- entering

    def _enter(self, catalog: Catalog, history: History, heard: Heard) -> None:
        """Takes the job for a run of the query, and learns where it stands."""
        store_id = self._store_id()
        found = catalog.job(self._job)
        if found is not None and found.definition.get("store") not in (None, store_id):
            self._drop_other(catalog, found)
        self._register(catalog)
        incarnation = catalog.take(self._job)
        job = catalog.job(self._job)
        if job is None:
            raise CatalogError(f"job {self._job!r} was dropped meanwhile", "unknown_job")
        rows = {row.epoch: row for row in catalog.checkpoints(self._job) if row.status == "committed"}
        line = history.line
        if job.line > line.number:
            raise EpochError(
                f"{self._home.path}: is on line {line.number}, the catalog knows line {job.line} of job "
                f"{self._job!r}: the state is an older copy. Bring back the newer one, or give another job="
            )
        latest = job.latest_checkpoint_epoch
        if job.line < line.number:  # taken back by somebody who did not come to tell the catalog
            latest = max((epoch for epoch in rows if epoch <= line.epoch), default=0)
            catalog.rewind(self._job, incarnation, latest, line.number)
        for listed in self._store.list():  # saved, and perhaps never committed: they know offsets that nobody else does
            if listed.manifest is not None and listed.problem is None:
                self._learn(
                    _line_of(listed.manifest), listed.manifest.epoch, _offsets_of(listed.manifest), is_sure=False
                )
        self._last_ms = rows[latest].timestamp_ms if latest in rows else None
        self._run, self._incarnation, self._latest = heard.run, incarnation, latest

    def _register(self, catalog: Catalog) -> None:
        definition = {**self._told, "state": self._home.path, "store": self._store_id()}
        interval_ms = max(1, self._interval_ms)
        catalog.register(self._job, kind=KIND, definition=definition, checkpoint_interval_ms=interval_ms)

    def _drop_other(self, catalog: Catalog, found: JobRow) -> None:
        """The job was one with another state. If that is still there, it keeps the name."""
        path, theirs = found.definition.get("state"), found.definition.get("store")
        if isinstance(path, str) and path != self._home.path and is_home(self._home.fs, path):
            other = Home(self._home.fs, path)
            identity = read_identity(other.fs, other.partition(0))
            if identity is not None and identity.store_id == theirs:
                raise LsmStateError(
                    f"{self._home.path}: the catalog knows job {self._job!r} with its state in {path}. Give another "
                    "job=, or delete that state"
                )
        catalog.drop(self._job)

    def _store_id(self) -> str | None:
        path = self._home.partition(0)
        identity = read_identity(self._home.fs, path) if self._home.fs.kind(path) is not None else None
        return None if identity is None else identity.store_id

    def _catalog_now(self) -> Catalog:
        if self._catalog is None:
            self._catalog = self._open()
        return self._catalog

    # ---- completing

    def _is_due(self, begun_ms: int | None) -> bool:
        last = self._last_ms
        return begun_ms is not None and (last is None or not 0 <= begun_ms - last < self._interval_ms)

    def _begun_ms(self, heard: Heard) -> int | None:
        barrier = read_barrier(self._home, heard.epoch)
        return None if barrier is None or barrier.line != heard.line else barrier.timestamp_ms

    def _complete(self, catalog: Catalog, history: History, heard: Heard, epoch: int) -> None:
        """A checkpoint of an epoch that the sink has committed, because Spark has gone beyond it or says so."""
        manifest = self._manifest(self._next_id(catalog), history, heard, epoch)
        manifest = self._store.save(manifest)
        row = CheckpointRow(
            checkpoint_id=manifest.checkpoint_id,
            epoch=epoch,
            line=history.line.number,
            timestamp_ms=manifest.timestamp_ms,
            size_bytes=manifest.size_bytes,
            watermark=manifest.watermark,
            manifest=f"{self._store.path}/{manifest_name(manifest.checkpoint_id, 0)}",
            note="" if epoch == heard.epoch else "made from disk",
        )
        offsets = {name: dict(source.offsets) for name, source in manifest.source_offsets.items()}
        catalog.commit_job_checkpoint(self._job, self._incarnation, row, offsets)
        self._latest, self._last_ms = epoch, manifest.timestamp_ms

    def _manifest(self, checkpoint_id: int, history: History, heard: Heard, epoch: int) -> CheckpointManifest:
        known = self._offsets.get((history.line.at(epoch).number, epoch), {})
        sources = {}
        for name in sorted({*heard.ends, *known}):
            offset = known.get(name)
            is_known = name in known and offset is not None
            offsets = {OFFSET: offset} if is_known and offset is not None else {}
            sources[name] = ConnectorCheckpoint(offsets, epoch, {} if is_known else {UNKNOWN: "unknown"})
        states = {}
        for partition, candidate in enumerate(history.candidates[epoch]):
            directory = self._home.partition(partition).rpartition("/")[2]
            states[directory] = OperatorState(lsm=lsm_state(self._home.fs, self._home.path, directory, candidate))
        told = json.dumps(self._told, sort_keys=True, separators=(",", ":"))
        barrier = history.barriers[epoch]
        return CheckpointManifest(
            version=1,
            checkpoint_id=checkpoint_id,
            epoch=epoch,
            timestamp_ms=barrier.timestamp_ms,
            source_offsets=sources,
            sink_epochs={heard.sink: epoch},
            sink_commit_statuses={heard.sink: COMMITTED},
            operator_states=states,
            watermark=barrier.watermark,
            source_names=tuple(sources),
            sink_names=(heard.sink,),
            pipeline_hash=hashlib.sha256(told.encode()).hexdigest(),
            incarnation=self._incarnation,
        )

    def _next_id(self, catalog: Catalog) -> int:
        """An id above all that were saved here, also by drivers with another catalog."""
        newest = max(self._store.ids(), default=0)
        for _ in range(_IDS_MAX):
            found = catalog.next_checkpoint_id(self._job, self._incarnation)
            if found > newest:
                return found
        raise LsmStateError(f"{self._store.path}: holds checkpoint {newest}, which no catalog of this job gave out")

    def _forget_retired(self, catalog: Catalog, history: History) -> None:
        """Checkpoints whose epoch is retired cannot be gone back to: they go, from the catalog first."""
        rows = catalog.checkpoints(self._job)
        stay = {row.checkpoint_id for row in rows if row.epoch >= history.first or row.epoch == self._latest}
        catalog.forget(self._job, self._incarnation, {row.checkpoint_id for row in rows} - stay)
        self._store.prune(1, keep=stay)

    # ---- offsets

    def _learn(self, line: int, epoch: int, offsets: Mapping[str, str | None], *, is_sure: bool = True) -> None:
        if epoch < 1 or not offsets or ((line, epoch) in self._offsets and not is_sure):
            return
        self._offsets[line, epoch] = dict(offsets)
        while len(self._offsets) > _HEARD_MAX:
            self._offsets.popitem(last=False)


def _offsets_of(manifest: CheckpointManifest) -> dict[str, str | None]:
    """The offsets that a manifest tells; nothing if it does not know all of them."""
    if any(UNKNOWN in source.metadata for source in manifest.source_offsets.values()):
        return {}
    return {name: source.offsets.get(OFFSET) for name, source in manifest.source_offsets.items()}


def _line_of(manifest: CheckpointManifest) -> int:
    """The line that a checkpoint's epoch lies on, as the names of its candidates tell."""
    for state in manifest.operator_states.values():
        parsed = names.parse(state.lsm.candidate) if state.lsm is not None else None
        if parsed is not None:
            return parsed.line
    return 1


def sources_of(manifest: CheckpointManifest) -> dict[str, Any]:
    """The offset of each source as JSON; None where nobody knows it."""
    return {name: source.offsets.get(OFFSET) for name, source in manifest.source_offsets.items()}
