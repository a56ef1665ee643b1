"""Which checkpoint a job goes on from: the newest one that is valid in all its parts.

Reads only. The catalog decides what was committed; manifests say what it was. So a manifest newer than the catalog's
last epoch counts only if the driver just before wrote it: it was durable, nobody has gone on since, and it is rolled
forward. Anything else newer was never committed. Invariants: nothing is skipped without a reason told; checksums of
sidecars are verified; a directory whose manifests are all unusable, or gone though the catalog knows of some, is an
error and never a fresh start; a manifest of a newer version is never passed over.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsmstate.checkpoint.manifest.manifest import CheckpointManifest
from lsmstate.checkpoint.manifest.problems import Problem
from lsmstate.errors import CorruptionError

if TYPE_CHECKING:
    from lsmstate.checkpoint.manifest.store import ManifestStore

CHAIN_MAX = 1000  # parents in a row; ours have one


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that recovery did not take. damaged: it cannot be used at all; else it was never committed."""

    id: int
    why: str
    damaged: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """manifest: to go on from; None for a fresh start. skipped: newer ones, the newest first. warnings: what is odd
    about the manifest. rolls_forward: the catalog does not know it yet and has to commit it. is_behind: the catalog
    has committed a later epoch, which is gone or damaged: sinks have rows that will come again."""

    manifest: CheckpointManifest | None
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[Problem, ...] = ()
    rolls_forward: bool = False
    is_behind: bool = False


def recover(
    store: ManifestStore,
    *,
    incarnation: int | None = None,
    at_most: int | None = None,
    committed: Collection[int] | None = None,
) -> Recovered:
    """The newest valid checkpoint of a store.

    at_most: the last epoch that the catalog committed, 0 if none; a newer one is taken only if `incarnation`, the
    driver before this one, wrote it. committed: the ids that the catalog committed; others of those epochs are never
    taken. Without them the directory alone decides. Raises CorruptionError if there is nothing to go on from, though
    there was, and FormatVersionError if a newer lsmstate has written here.
    """
    if at_most is None and (incarnation is not None or committed is not None):
        raise ValueError("incarnation and committed are for a job whose last epoch is known: give at_most too")
    skipped: list[Skipped] = []
    for own in sorted({*store.ids(), *(committed or ())}, reverse=True):
        try:
            manifest = store.load(own)
            if manifest is None:
                skipped.append(Skipped(own, "its manifest is missing", damaged=True))
                continue
            if (why := _uncommitted(manifest, incarnation, at_most, committed)) is not None:
                skipped.append(Skipped(own, why, damaged=False))
                continue
            _check(store, manifest)
        except CorruptionError as error:
            skipped.append(Skipped(own, str(error), damaged=True))
            continue
        warnings = tuple(problem for problem in manifest.validate() if problem.severity == "warning")
        ahead = 0 if at_most is None else manifest.epoch - at_most
        return Recovered(manifest, tuple(skipped), warnings, ahead > 0, ahead < 0)
    damaged = [entry for entry in skipped if entry.damaged]
    if damaged or at_most:
        expected = f"a checkpoint of epoch {at_most} or before" if at_most else "a valid checkpoint"
        told = "; ".join(f"checkpoint {entry.id}: {entry.why}" for entry in skipped[:10]) or "no manifest at all"
        raise CorruptionError(store.path, 0, expected, told)
    return Recovered(None, tuple(skipped))


def _check(store: ManifestStore, manifest: CheckpointManifest) -> None:
    """Raises CorruptionError unless it is valid, its own parts and those of its parents as they were saved."""
    needed, at = [manifest], manifest
    while at.is_incremental and at.parent_id is not None and not at.errors():
        parent = store.load(at.parent_id)
        if parent is None:
            raise CorruptionError(
                store.path, 0, f"checkpoint {at.parent_id}, the parent of {at.checkpoint_id}", "nothing"
            )
        if len(needed) > CHAIN_MAX:
            raise CorruptionError(store.path, 0, f"at most {CHAIN_MAX} parents in a row", "more")
        needed.append(parent)
        at = parent
    for each in needed:
        if problems := each.errors():
            where = f"{store.path}: checkpoint {each.checkpoint_id}"
            raise CorruptionError(where, 0, "a valid manifest", "; ".join(map(str, problems)))
    for each in needed:
        if each.state_checksum is not None:
            store.sidecar(each)
    store.states(manifest)


def _uncommitted(
    manifest: CheckpointManifest, incarnation: int | None, at_most: int | None, committed: Collection[int] | None
) -> str | None:
    """Why a manifest may not be taken, however sound it is; None if it may."""
    if at_most is None:
        return None
    if manifest.epoch > at_most:
        if incarnation is not None and manifest.incarnation == incarnation:
            return None
        return f"epoch {manifest.epoch} was never committed: the catalog is at epoch {at_most}"
    if committed is not None and manifest.checkpoint_id not in committed:
        return f"an attempt at epoch {manifest.epoch} that was never committed"
    return None
