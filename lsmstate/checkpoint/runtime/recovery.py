"""Recovery: where a job goes on, decided by the catalog, and by what the driver before this one has left.

A checkpoint counts once the catalog has it. One that is durable, was made by the driver right before this one, and is
not in the catalog yet is rolled forward; any other that the catalog does not know is an orphan. Sinks then commit
what was decided and drop what was not.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from lsmstate.checkpoint.catalog import Catalog, CheckpointRow
from lsmstate.checkpoint.coordinator.phases import Retained
from lsmstate.checkpoint.manifest.manifest import CheckpointManifest
from lsmstate.checkpoint.manifest.packing import States
from lsmstate.checkpoint.manifest.store import ManifestStore, Recovered, drift
from lsmstate.checkpoint.runtime.graph import Graph
from lsmstate.errors import CheckpointError, FormatVersionError, LsmStateError

_log = logging.getLogger("lsmstate.checkpoint")


@dataclass(frozen=True)
class Restored:
    """Where a job goes on: epoch 0 is its beginning. warnings: what has changed or was skipped, in words."""

    epoch: int = 0
    manifest: CheckpointManifest | None = None
    states: States = field(default_factory=lambda: States({}, {}, {}))
    warnings: tuple[str, ...] = ()


def recover(catalog: Catalog, name: str, incarnation: int, store: ManifestStore, graph: Graph) -> Restored:
    """Decides where a job goes on. Requires: the incarnation is the present one, so that no other driver decides."""
    job = catalog.job(name)
    assert job is not None
    latest = job.latest_checkpoint_epoch
    rows = catalog.checkpoints(name)
    known = {row.checkpoint_id for row in rows}  # also those that were left behind
    committed = [row.checkpoint_id for row in rows if row.status == "committed"]
    try:
        found = store.recover(incarnation=incarnation - 1, at_most=latest, committed=committed)
    except FormatVersionError:
        raise
    except LsmStateError as error:
        raise CheckpointError(f"job {name!r} stands at epoch {latest} and cannot go on from it: {error}") from error
    manifest = found.manifest
    if (0 if manifest is None else manifest.epoch) < latest:
        raise CheckpointError(_told(name, latest, found))
    left = known.difference(committed)
    warnings = [
        f"checkpoint {skipped.id} was skipped: {'left behind' if skipped.id in left else skipped.why}"
        for skipped in found.skipped
    ]
    warnings += [str(problem) for problem in found.warnings]
    if manifest is None:
        _tell(name, warnings)
        _remove_orphans(store, 0, incarnation, known)
        return Restored(warnings=tuple(warnings))
    names = {"source_names": sorted(graph.sources), "sink_names": sorted(graph.sinks)}
    warnings += drift(manifest, **names, pipeline_hash=graph.hash())
    _check_sources(name, manifest, graph)
    states = store.states(manifest)
    if found.rolls_forward:
        commit(catalog, name, incarnation, manifest, job.line, "rolled forward by the next driver")
    _remove_orphans(store, manifest.checkpoint_id, incarnation, known)
    _tell(name, warnings)
    return Restored(manifest.epoch, manifest, states, tuple(warnings))


def commit(
    catalog: Catalog, name: str, incarnation: int, manifest: CheckpointManifest, line: int, note: str = ""
) -> None:
    """Makes a checkpoint count: epoch and offsets in one transaction."""
    row = CheckpointRow(
        checkpoint_id=manifest.checkpoint_id,
        epoch=manifest.epoch,
        line=line,
        timestamp_ms=manifest.timestamp_ms,
        size_bytes=manifest.size_bytes,
        watermark=manifest.watermark,
        is_incremental=manifest.is_incremental,
        manifest=str(manifest.checkpoint_id),
        note=note,
    )
    offsets = {source: dict(told.offsets) for source, told in manifest.source_offsets.items()}
    catalog.commit_job_checkpoint(name, incarnation, row, offsets)


def retained(store: ManifestStore, restored: Restored) -> list[Retained]:
    """What earlier runs have kept, oldest first."""
    kept: dict[int, Retained] = {}
    for listed in store.list():
        manifest = listed.manifest
        if manifest is not None and listed.problem is None and manifest.epoch <= restored.epoch:
            positions = {name: dict(told.offsets) for name, told in manifest.source_offsets.items()}
            kept[manifest.epoch] = Retained(
                manifest.checkpoint_id, manifest.epoch, manifest.timestamp_ms, manifest.size_bytes, positions
            )
    return [kept[epoch] for epoch in sorted(kept)]


def _remove_orphans(store: ManifestStore, after: int, incarnation: int, known: Collection[int]) -> None:
    """Removes what earlier drivers have left after the checkpoint that counts, and the catalog knows nothing of; never
    what a later driver has made."""
    newer = [listed for listed in store.list() if listed.id > after and listed.id not in known]
    store.remove_orphans([o.id for o in newer if o.manifest is None or o.manifest.incarnation < incarnation])


def _check_sources(name: str, manifest: CheckpointManifest, graph: Graph) -> None:
    """A source without offsets would start from its beginning, behind state that has moved on."""
    missing = sorted(set(graph.sources) - set(manifest.source_offsets))
    if missing:
        raise CheckpointError(
            f"job {name!r}: checkpoint {manifest.checkpoint_id} knows no offsets of {', '.join(missing)}; "
            f"its sources were {', '.join(sorted(manifest.source_offsets)) or 'none'}. Go on with those, or drop the "
            "job and start anew"
        )


def _told(name: str, latest: int, found: Recovered) -> str:
    reasons = "; ".join(f"checkpoint {skipped.id}: {skipped.why}" for skipped in found.skipped) or "it is gone"
    older = "none is left"
    if found.manifest is not None:
        epoch = found.manifest.epoch
        older = f"the newest sound one is of epoch {epoch}: `lsmstate restore {name} --epoch {epoch}` goes back to it"
    return f"job {name!r} stands at epoch {latest}, whose checkpoint cannot be used ({reasons}); {older}"


def _tell(name: str, warnings: list[str]) -> None:
    for warning in warnings:
        _log.warning("job %s: %s", name, warning)
