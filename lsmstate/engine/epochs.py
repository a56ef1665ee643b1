"""Epochs: prepare makes one durable as a candidate, commit publishes it, abort forgets it, restore goes back.

Between prepare(N) and commit(N) the rows of N are durable but not yet part of the state: a crash then leaves a
complete candidate, which `commit(N)` of a new handle can still publish, or `abort(N)` forget. What is written after
prepare(N) belongs to a later epoch. An aborted epoch loses no rows: they go into the next one.

In a state with a write-ahead log an epoch names the place in it that its files reach, taken after they are written.
What is logged later is replayed on top of it. A restore names a place behind all that was logged.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lsmstate.engine.files import check_retained
from lsmstate.engine.flush import flush
from lsmstate.engine.garbage import collect
from lsmstate.engine.wal_replay import replay
from lsmstate.errors import CorruptionError, EpochError, FencedError, LsmStateError, SnapshotExpired
from lsmstate.limited_json import check_depth
from lsmstate.manifest import names
from lsmstate.manifest.log import Head, Manifest
from lsmstate.manifest.version import EPOCH_MAX, LogMark, Past, Version
from lsmstate.refs import FileRef

if TYPE_CHECKING:
    from lsmstate.engine.core import Core


def prepare(core: Core, epoch: int, meta: Mapping[str, Any] | None) -> Manifest:
    """Makes a candidate of all that was written so far. Requires: the write lock."""
    core.check_writable()
    check_epoch(epoch)
    if core.prepared is not None:
        raise EpochError(f"epoch {core.prepared.version.epoch} is prepared; commit or abort it before epoch {epoch}")
    notes = _checked_meta(meta)
    last = core.head.version.epoch
    if epoch <= last:
        raise EpochError(f"epoch {epoch} is not after {last}, the last one committed; epochs only go forward")
    if core.logs:
        take_over(core)
    flush(core)
    core.compactor.adopt()
    version = replace(
        _trimmed(core),
        epoch=epoch,
        history=_history(core.head, core.options.retain),
        meta=notes,
        wal=_log_mark(core),
    )
    manifest = core.log.write_candidate(version, core.attempt, core.next_number(), core.head)
    with core.swap_lock:
        core.working = version
        core.prepared = manifest
    if core.detached:  # nobody will commit here: this is as far as an epoch comes
        core.compactor.kick()
    return manifest


def commit(core: Core, epoch: int, candidate: str | None) -> None:
    """Publishes a prepared epoch. Requires: the write lock. Committing the newest epoch again does nothing."""
    core.check_writable()
    check_epoch(epoch)
    check_attached(core)
    manifest = core.prepared
    if manifest is not None and manifest.version.epoch == epoch and candidate in (None, manifest.name):
        _publish(core, manifest)
        return
    if manifest is not None and manifest.version.epoch != epoch:
        raise EpochError(f"epoch {manifest.version.epoch} is prepared, not epoch {epoch}")
    head = core.head.manifest
    if head is not None and epoch == head.version.epoch and candidate in (None, head.name):
        return
    if candidate is not None and _was_taken_over(core, epoch, candidate):
        return
    manifest = _left_behind(core, epoch, candidate)
    core.fs.sync_file(f"{core.log.directory}/{manifest.name}")  # its writer may have died before it did
    if _has_written(core):
        raise EpochError(f"epoch {epoch} was prepared by another handle, and this one has written since; reopen first")
    _publish(core, manifest)
    if core.wal is not None:
        core.forget_rows()  # they were replayed, and are part of the epoch, or come again now
    with core.swap_lock:
        core.working = manifest.version
    if core.wal is not None:
        replay(core)


def abort(core: Core, epoch: int) -> None:
    """Forgets a prepared epoch, or the candidates that a crash left of it. Requires: the write lock."""
    core.check_writable()
    check_epoch(epoch)
    if core.prepared is not None and core.prepared.version.epoch == epoch:
        forgotten = [core.prepared.name]
        with core.swap_lock:
            core.working = replace(core.working, epoch=core.head.version.epoch)
            core.prepared = None
    else:
        forgotten = core.log.candidates(epoch, core.head.number + 1)
        if not forgotten or epoch <= core.head.version.epoch:
            raise EpochError(f"epoch {epoch} is not prepared; there is nothing to abort")
    if core.head.number == 0:
        _note_abort(core)
    for name in forgotten:
        with contextlib.suppress(FileNotFoundError):  # another handle has forgotten it already
            core.fs.unlink(f"{core.log.directory}/{name}")
    core.fs.sync_dir(core.log.directory)


def _note_abort(core: Core) -> None:
    """Says durably that a state without manifests need not have lost any: see remains.py."""
    where = f"{core.log.directory}/{names.ABORTED}"
    if core.fs.kind(where) is None:
        with contextlib.suppress(FileExistsError):  # another handle was faster
            core.fs.create(where).close()
    core.fs.sync_dir(core.log.directory)


def restore(core: Core, epoch: int) -> None:
    """Goes back to a committed epoch, durably, on a new line. Requires: the write lock."""
    core.check_writable()
    check_attached(core)
    try:
        past = find_epoch(core, epoch)
        for file in past.version.files.values():
            check_retained(core, file, epoch)  # a state must not go on from what it can't read
    except (CorruptionError, SnapshotExpired):
        with core.fencing():
            core.log.check_newest(core.head)  # another handle may have retired it
        raise
    kept = tuple(p for p in _pasts(core.head) if p.epoch < epoch)
    version = replace(past.version, line=core.head.version.line + 1, history=kept, wal=_log_mark(core))
    manifest = core.log.write_candidate(version, core.attempt, core.next_number(), core.head, full=True)
    _publish(core, manifest)
    core.forget_rows()
    with core.swap_lock:
        core.working = version


def take_over(core: Core) -> None:
    """Publishes anew what is published, once for each handle that logs, before its first record: from then on no handle
    before it can publish a state without its records, and the state names its log. Requires: the write lock."""
    if core.took_over and core.head.version.wal is not None:
        return
    assert core.wal is not None
    with core.fencing():
        core.wal.check_owner()  # whoever has the log now must not be fenced by one that had it before
    mark = core.head.version.wal or _log_mark(core)
    version = replace(core.head.version, wal=mark)
    manifest = core.log.write_candidate(version, core.attempt, core.next_number(), core.head)
    _publish(core, manifest)
    core.swap(wal=mark)


def find_epoch(core: Core, epoch: int) -> Manifest:
    """The manifest of a committed epoch that is still retained."""
    check_epoch(epoch)
    head = core.head.manifest
    if head is not None and head.version.epoch == epoch:
        return head
    for past in _pasts(core.head):
        if past.epoch == epoch:
            return core.log.read(past.manifest)
    known = ", ".join(str(past.epoch) for past in _pasts(core.head)) or "none"
    raise EpochError(f"no epoch {epoch}; those that can be opened are: {known}")


def check_epoch(epoch: int) -> None:
    """Raises EpochError unless it is a possible epoch."""
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 1 <= epoch <= EPOCH_MAX:
        raise EpochError(f"epochs are whole numbers from 1 to {EPOCH_MAX}, not {epoch!r}")


def check_attached(core: Core) -> None:
    """Raises unless the handle stands on the published state."""
    if core.detached:
        raise EpochError(
            f"{core.path}: opened at a candidate; such a handle prepares, and others choose what to publish"
        )


def _publish(core: Core, manifest: Manifest) -> None:
    try:
        head = core.log.publish(manifest, core.head)
    except FencedError as error:
        core.fenced = error
        raise
    except EpochError:
        with core.swap_lock:
            core.prepared = None
            core.working = replace(core.working, epoch=core.head.version.epoch)
        raise
    except OSError as error:
        if core.log.in_doubt:
            core.fs.poison = core.fs.poison or error  # published or not: only a new handle can tell
        raise
    with core.swap_lock:
        core.head = head
        core.prepared = None
        core.took_over = True
    collect(core)
    core.compactor.kick()


def _log_mark(core: Core) -> LogMark | None:
    """Where the log goes on from what was written so far; None if there is none. Requires: the write lock."""
    if core.wal is None:
        return None
    with core.fencing():
        return core.wal.mark()


def _has_written(core: Core) -> bool:
    if core.wal is not None:
        return core.moment() != core.replayed
    now, then = core.working, core.head.version
    return (now.next_id, now.watermark, now.tombstones) != (then.next_id, then.watermark, then.tombstones)


def _was_taken_over(core: Core, epoch: int, candidate: str) -> bool:
    """Whether the head is what a candidate was, published anew by a handle that logs."""
    if core.wal is None or epoch != core.head.version.epoch:
        return False
    try:
        then = core.log.read(candidate).version
    except LsmStateError:
        return False
    return replace(then, wal=None) == replace(core.head.version, wal=None)


def _left_behind(core: Core, epoch: int, candidate: str | None) -> Manifest:
    """The candidate that an earlier handle prepared and did not commit."""
    found = core.log.candidates(epoch, core.head.number + 1)
    if candidate is not None:
        found = [name for name in found if name == candidate]
    if not found or epoch <= core.head.version.epoch:
        raise EpochError(f"epoch {epoch} is not prepared; call prepare({epoch}) first")
    if len(found) > 1:
        raise EpochError(f"epoch {epoch} has {len(found)} candidates; name one with candidate=: {', '.join(found)}")
    return core.log.read(found[0])


def _pasts(head: Head) -> tuple[Past, ...]:
    """All epochs that can be opened, the newest last."""
    if head.version.epoch == 0:  # of a new state; one with a log may have been published all the same
        return ()
    assert head.manifest is not None
    return (*head.version.history, Past(head.version.epoch, head.manifest.name))


def retained_epochs(core: Core) -> list[int]:
    """The numbers of all epochs that can be opened."""
    return [past.epoch for past in _pasts(core.head)]


def _history(head: Head, retain: int) -> tuple[Past, ...]:
    return _pasts(head)[-(retain - 1) :] if retain > 1 else ()


def _checked_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """What will be read back: only what JSON can tell."""
    try:
        told = json.loads(json.dumps(dict(meta or {})))
        check_depth(told)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"meta must be a dict that JSON can tell: {error}") from None
    assert isinstance(told, dict)
    return told


def _trimmed(core: Core) -> Version:
    """The working version without what the watermark has retired, run by run, and without spent tombstones."""
    version = core.working
    if version.watermark is not None:
        retired = [-math.inf if s.retention_us is None else version.watermark - s.retention_us for s in core.sides]
        files: dict[str, FileRef] = {}
        for name, ref in version.files.items():
            alive = [part is not None and part.max_ts > retired[part.side] for part in ref.parts]
            if any(alive):
                files[name] = ref if all(alive) else _without(ref, alive)
        if files != version.files:
            version = replace(version, files=files)
    spent = [t for t in version.tombstones if not any(t.can_kill(ref) for ref in version.files.values())]
    return replace(version, tombstones=tuple(t for t in version.tombstones if t not in spent)) if spent else version


def _without(ref: FileRef, alive: list[bool]) -> FileRef:
    left = tuple(part if keep else None for part, keep in zip(ref.parts, alive, strict=True))
    return ref if left == ref.parts else ref._replace(left=left)
