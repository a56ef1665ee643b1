"""The manifests of a job's checkpoints: one directory, a manifest and maybe a sidecar for each.

Order on disk: sidecar created exclusively, written, fsynced, its directory fsynced -> manifest written as a draft,
fsynced, linked to its name (which exactly one writer can do) -> directory fsynced -> acknowledged. Nothing is rewritten
in place: an update publishes the next revision, and the older one goes after. What is removed goes in the opposite
order: manifests before what they lean on.
Threading: one driver at a time writes, the catalog sees to that; any number may read meanwhile.
Invariants: an id is saved once. A manifest is loaded as it was saved, or CorruptionError; None is for ids that were
never saved. A sidecar is handed out only when its checksum is right.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from iopool import Bytes, FileSystem
from lsmstate.checkpoint.manifest import document
from lsmstate.checkpoint.manifest.files import ManifestFiles
from lsmstate.checkpoint.manifest.manifest import COMMITTED, CheckpointManifest
from lsmstate.checkpoint.manifest.packing import States, read_states
from lsmstate.checkpoint.manifest.problems import drift
from lsmstate.checkpoint.manifest.recovery import Recovered, Skipped, recover
from lsmstate.errors import CorruptionError, EpochError, FencedError, FormatVersionError

__all__ = ["Listed", "ManifestStore", "Recovered", "Skipped", "drift"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A checkpoint in the directory. problem: why it cannot be used; then the manifest and its epoch may be unknown."""

    id: int
    epoch: int | None
    problem: str | None
    manifest: CheckpointManifest | None


class ManifestStore:
    """The directory of one job's manifests; created durably when first saved to."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self._files = ManifestFiles(fs, path)

    # ---- writing

    def save(self, manifest: CheckpointManifest, sidecar: Bytes | Sequence[Bytes] | None = None) -> CheckpointManifest:
        """Makes a checkpoint durable, its sidecar first; gives the manifest with its checksum and size.

        Raises EpochError if the id, or a later one, was saved before, and ValueError if the manifest is not valid. An
        OSError leaves open whether it was saved: take another id, and `discard` this one before anything is undone.
        """
        pieces = [sidecar] if isinstance(sidecar, Bytes) else [*(sidecar or ())]
        length = sum(memoryview(piece).nbytes for piece in pieces)
        summed = sha256()
        for piece in pieces:
            summed.update(piece)
        size = sum(part.size_bytes for part in manifest.parts())
        manifest = replace(manifest, size_bytes=size, state_checksum=summed.hexdigest() if length else None)
        _check(manifest)
        _check_ends(manifest, length)
        own, files = manifest.checkpoint_id, self._files
        files.create()
        revisions, sidecars = files.listing()
        newest = max((*revisions, *sidecars), default=0)
        if newest >= own:
            raise EpochError(f"{self.path}: checkpoint {own} comes after {newest}; ids go up, and are used once")
        if manifest.parent_id is not None and manifest.parent_id not in revisions:
            raise ValueError(f"checkpoint {own} leans on checkpoint {manifest.parent_id}, which is not here")
        if length:
            with _used_once(self.path, own):
                files.write(document.sidecar_name(own), pieces)
            files.settle()
        if not files.publish(manifest, 0, newest=True):
            raise EpochError(f"{self.path}: checkpoint {own} or a later one was saved by another; ids are used once")
        return manifest

    def update(self, manifest: CheckpointManifest) -> None:
        """Saves new statuses of sinks, atomically. All else must be as it was saved, checksum and sidecar included."""
        own = manifest.checkpoint_id
        saved, _ = self._files.read(own)
        if saved is None:
            raise EpochError(f"{self.path}: checkpoint {own} was never saved, or is pruned; there is nothing to update")
        if replace(manifest, sink_commit_statuses=saved.sink_commit_statuses) != saved:
            raise ValueError(f"checkpoint {own} differs from what was saved in more than the statuses of its sinks")
        for sink, status in saved.sink_commit_statuses.items():
            if status == COMMITTED and manifest.sink_commit_statuses.get(sink) != COMMITTED:
                raise ValueError(f"checkpoint {own}: sink {sink!r} has committed; that cannot be taken back")
        if manifest == saved:
            self._files.settle()  # whoever saved it may have died before
            return
        _check(manifest)
        before = self._files.listing()[0].get(own, [0])  # those that cannot be read count too
        if not self._files.publish(manifest, before[-1] + 1):
            raise FencedError(f"{self.path}: another has updated checkpoint {own} meanwhile; load it again")
        for old in before:
            self._files.unlink(document.manifest_name(own, old))
        self._files.settle()  # so that none comes back when the newest is pruned

    def discard(self, checkpoint_id: int) -> bool:
        """Removes a checkpoint durably, whole or not; False if nothing of it was there.

        Raises ValueError if another leans on it.
        """
        if checkpoint_id in self._leaned_on(without={checkpoint_id}):
            raise ValueError(f"{self.path}: a later checkpoint leans on checkpoint {checkpoint_id}; it has to stay")
        return self._discard(checkpoint_id)

    def _discard(self, checkpoint_id: int) -> bool:
        files = self._files
        revisions, sidecars = files.listing()
        found = revisions.get(checkpoint_id, [])
        for manifests in (found[:-1], found[-1:]):  # an older revision never outlives the newest
            for revision in manifests:
                files.unlink(document.manifest_name(checkpoint_id, revision))
            if manifests:
                files.settle()
        if checkpoint_id in sidecars:
            files.unlink(document.sidecar_name(checkpoint_id))
            files.settle()
        return bool(found) or checkpoint_id in sidecars

    def prune(self, retain: int, keep: Collection[int] = ()) -> builtins.list[int]:
        """Removes all but the newest `retain` checkpoints, those in `keep`, and what they lean on; gives the ids.

        What cannot be read is neither counted nor, unless it is older than all that stays, removed.
        """
        if retain < 1:
            raise ValueError(f"retain is {retain}; at least one checkpoint has to stay")
        listed = self.list()
        if len(listed) <= retain:
            return []
        usable = {entry.id: entry.manifest for entry in listed if entry.manifest is not None and not entry.problem}
        kept = {*sorted(usable)[-retain:]}
        if not kept:
            return []
        oldest = min(kept)
        kept |= {*keep} | {entry.id for entry in listed if entry.id > oldest}
        readable = {entry.id: entry.manifest for entry in listed if entry.manifest is not None}
        for own in [*kept]:
            found = readable.get(own)
            while found is not None and found.parent_id is not None and found.parent_id not in kept:
                kept.add(found.parent_id)
                found = readable.get(found.parent_id)
        gone = [entry.id for entry in listed if entry.id not in kept]
        for own in reversed(gone):  # children first
            self._discard(own)
        return gone

    def remove_orphans(self, ids: Collection[int] = ()) -> builtins.list[str]:
        """Removes these checkpoints, and what crashes left behind: drafts, old revisions, sidecars without a manifest.

        What another checkpoint leans on stays. Requires: earlier drivers are fenced; one that still saves may find its
        draft gone.
        """
        files, needed = self._files, self._leaned_on(without=ids)
        before = {*files.names()}
        for own in sorted({*ids} - needed, reverse=True):
            self._discard(own)
        revisions, sidecars = files.listing()
        for own, found in revisions.items():
            with contextlib.suppress(CorruptionError, FormatVersionError):  # which revision counts is unknown: all stay
                counts = files.read(own)[1]
                for old in found:
                    if old < counts:
                        files.unlink(document.manifest_name(own, old))
        for own in sidecars - revisions.keys() - needed:
            files.unlink(document.sidecar_name(own))
        for name in filter(document.is_draft, before):
            files.unlink(name)
        gone = sorted(before - {*files.names()})
        if gone:
            files.settle()
        return gone

    def _leaned_on(self, without: Collection[int]) -> set[int]:
        """All parents of the checkpoints that can be read, but for some of them."""
        manifests = [entry.manifest for entry in self.list() if entry.id not in without]
        return {found.parent_id for found in manifests if found is not None and found.parent_id is not None}

    # ---- reading

    def load(self, checkpoint_id: int) -> CheckpointManifest | None:
        """A checkpoint's manifest by its id; None if it was never saved, or is pruned."""
        return self._files.read(checkpoint_id)[0]

    def latest(self) -> CheckpointManifest | None:
        """The manifest with the highest id; None if none was ever saved."""
        while revisions := self._files.listing()[0]:
            if (found := self.load(max(revisions))) is not None:
                return found
        return None

    def list(self) -> builtins.list[Listed]:
        """All checkpoints by id, those that cannot be used with the reason. Sidecars are not read, only looked for."""
        revisions, sidecars = self._files.listing()
        entries = []
        for own in sorted(revisions):
            try:
                manifest = self.load(own)
            except (CorruptionError, FormatVersionError) as error:
                entries.append(Listed(own, None, str(error), None))
                continue
            if manifest is None:
                continue  # pruned meanwhile
            problems = [str(problem) for problem in manifest.errors()]
            if manifest.state_checksum is not None and own not in sidecars:
                problems.append("its sidecar is missing")
            if manifest.is_incremental and manifest.parent_id not in revisions:
                problems.append(f"its parent, checkpoint {manifest.parent_id}, is missing")
            entries.append(Listed(own, manifest.epoch, "; ".join(problems) or None, manifest))
        return entries

    def sidecar(self, manifest: CheckpointManifest) -> memoryview:
        """The bytes of a checkpoint's sidecar, checksum verified. A missing one is CorruptionError, never empty."""
        path = f"{self.path}/{document.sidecar_name(manifest.checkpoint_id)}"
        if manifest.state_checksum is None:
            raise CorruptionError(path, 0, "a manifest that tells of a sidecar", "one that has none")
        data = self._files.sidecar(manifest.checkpoint_id)
        if (got := sha256(data).hexdigest()) != manifest.state_checksum:
            raise CorruptionError(path, 0, f"SHA-256 {manifest.state_checksum}", got)
        return data

    def states(self, manifest: CheckpointManifest) -> States:
        """The operator states and the records in flight of a checkpoint, wherever they lie."""

        def sidecar_of(checkpoint_id: int) -> memoryview:
            if checkpoint_id == manifest.checkpoint_id:
                return self.sidecar(manifest)
            if (parent := self.load(checkpoint_id)) is None:
                where = f"{self.path}/{document.manifest_name(checkpoint_id, 0)}"
                raise CorruptionError(where, 0, f"the parent of checkpoint {manifest.checkpoint_id}", "nothing")
            return self.sidecar(parent)

        return read_states(manifest, sidecar_of)

    def recover(
        self,
        *,
        incarnation: int | None = None,
        at_most: int | None = None,
        committed: Collection[int] | None = None,
    ) -> Recovered:
        """The newest checkpoint to go on from, and which were skipped and why: see recovery.py."""
        return recover(self, incarnation=incarnation, at_most=at_most, committed=committed)

    def ids(self) -> builtins.list[int]:
        """The ids of all saved checkpoints, ascending, readable or not."""
        return sorted(self._files.listing()[0])


def _check(manifest: CheckpointManifest) -> None:
    """Raises ValueError unless the manifest can be read back as it is and nothing is wrong with it."""
    own = manifest.checkpoint_id
    try:
        again = CheckpointManifest.from_json(manifest.to_json())
    except CorruptionError as error:
        raise ValueError(f"checkpoint {own}: {error.expected} is needed, not {error.got}") from None
    if again != manifest:
        raise ValueError(f"checkpoint {own}: has values that JSON cannot tell")
    if problems := manifest.errors():
        raise ValueError(f"checkpoint {own} is not valid: {'; '.join(map(str, problems))}")


def _check_ends(manifest: CheckpointManifest, sidecar_bytes: int) -> None:
    """Raises ValueError if a state lies outside of the sidecar."""
    places = [part.sidecar for part in manifest.parts() if part.sidecar is not None]
    end = max((place.offset + place.length for place in places if place.checkpoint_id is None), default=0)
    if end > sidecar_bytes:
        raise ValueError(
            f"checkpoint {manifest.checkpoint_id}: states end at byte {end} of a sidecar of {sidecar_bytes}"
        )


@contextlib.contextmanager
def _used_once(path: str, own: int) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise EpochError(f"{path}: checkpoint {own} is being saved by another; ids are used once") from None
