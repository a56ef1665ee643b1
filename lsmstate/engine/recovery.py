"""Recovery: goes back to an epoch of a state whose newest one is damaged, and says before what that loses.

Opening a state never goes back by itself: that is for somebody to decide who knows what can be replayed. The epoch is
published anew, after the head that is there, sound or not, so every handle that stands on that one is fenced. Nothing
is removed: what came later goes once its epochs are retired. Threading: none. Requires for all: a sound STATE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from iopool import FileSystem
from lsmstate.engine.identity import Identity
from lsmstate.engine.verify import STUMBLES
from lsmstate.engine.wal_chain import Link, Segments, begin_segment
from lsmstate.errors import EpochError, LsmStateError
from lsmstate.manifest import names
from lsmstate.manifest.log import Head, Manifest, ManifestLog
from lsmstate.manifest.version import LogMark
from lsmstate.sstable.reader import SSTable


@dataclass(frozen=True, slots=True)
class Loss:
    """What going back to an epoch loses: later epochs, rows of each side that came after, the files that hold them,
    those of them that nobody can read any more, and whether a log is discarded."""

    epochs: tuple[int, ...]
    rows: tuple[int, ...]
    size_bytes: int
    unreadable: tuple[str, ...]
    log_bytes: int


def published(fs: FileSystem, path: str, identity: Identity) -> list[Manifest]:
    """The manifests of the epochs that can be gone back to as far as manifests tell, oldest first: those of the newest
    head that can be read."""
    log = ManifestLog(fs, path, identity.store_id, len(identity.sides))
    for number in sorted(_heads(fs, log), reverse=True):
        try:
            newest = log.read(names.head(number))
        except (LsmStateError, OSError):
            continue
        return [*_readable(log, newest), newest] if newest.version.epoch else []
    return []


def loss_after(fs: FileSystem, path: str, identity: Identity, manifest: Manifest) -> Loss:
    """What is lost by going back to the epoch of a manifest. Rows are counted in the files, whatever names them."""
    version = manifest.version
    sst = f"{path}/{names.SST_DIR}"
    later = [name for name in sorted(fs.list_dir(sst)) if _is_after(name, version.epoch) and name not in version.files]
    ids: list[list[np.ndarray[tuple[int], np.dtype[np.uint64]]]] = [[] for _ in identity.sides]
    size, unreadable = 0, []
    for name in later:
        try:
            table = SSTable(fs, f"{sst}/{name}", dict(enumerate(identity.sides)))
            size += table.footer.file_bytes
            for run in table.runs:
                if run.ref.max_id >= version.next_id:
                    found = run.ids()
                    ids[run.ref.side].append(found[found >= np.uint64(version.next_id)])
        except (LsmStateError, OSError, *STUMBLES):
            unreadable.append(name)
    rows = tuple(len(np.unique(np.concatenate(each))) if each else 0 for each in ids)
    parsed = map(names.parse, fs.list_dir(f"{path}/{names.MANIFEST_DIR}"))
    epochs = {name.epoch for name in parsed if name is not None and name.epoch > version.epoch}
    return Loss(tuple(sorted(epochs)), rows, size, tuple(unreadable), _log_bytes(fs, path, identity))


def recover(fs: FileSystem, path: str, identity: Identity, epoch: int) -> Manifest:
    """Publishes an epoch anew, on a new line, after whatever is published. What is logged is left behind.

    Raises EpochError if no manifest of the epoch can be read, and FencedError if somebody publishes meanwhile."""
    log = ManifestLog(fs, path, identity.store_id, len(identity.sides))
    top = max(_heads(fs, log), default=0)
    found = {manifest.version.epoch: manifest for manifest in published(fs, path, identity)}
    if epoch not in found:
        known = ", ".join(map(str, found)) or "none"
        raise EpochError(
            f"{path}: no manifest of epoch {epoch} can be read; those that can be gone back to are: {known}"
        )
    version, attempt = found[epoch].version, names.new_attempt()
    parsed = [name for name in map(names.parse, fs.list_dir(log.directory)) if name is not None]
    line = max([version.line, *(name.line for name in parsed)]) + 1
    sound = set(found)
    history = tuple(past for past in version.history if past.epoch in sound)
    mark = _new_log(fs, path, identity, attempt, version.wal) if identity.logged else None
    version = replace(version, line=line, history=history, wal=mark)
    manifest = log.write_candidate(version, attempt, 1, Head(top, None), full=True)
    log.publish(manifest, Head(top, None))
    return manifest


def _heads(fs: FileSystem, log: ManifestLog) -> list[int]:
    return [number for name in fs.list_dir(log.directory) if (number := names.parse_head(name)) is not None]


def _readable(log: ManifestLog, newest: Manifest) -> Sequence[Manifest]:
    manifests = []
    for past in newest.version.history:
        try:
            manifests.append(log.read(past.manifest))
        except (LsmStateError, OSError):
            continue
    return manifests


def _is_after(name: str, epoch: int) -> bool:
    parsed = names.parse(name)
    return parsed is not None and parsed.kind == "sst" and parsed.epoch > epoch


def _log_bytes(fs: FileSystem, path: str, identity: Identity) -> int:
    """The bytes of the log: what is in it after the newest epoch may be lost, and is not counted by rows."""
    if not identity.logged:
        return 0
    segments = Segments(fs, f"{path}/{names.LOG_DIR}", identity.store_id)
    return sum(_size(fs, segments.path(number)) for number in segments.numbers())


def _size(fs: FileSystem, path: str) -> int:
    try:
        return len(fs.map(path))
    except OSError:
        return 0


def _new_log(fs: FileSystem, path: str, identity: Identity, attempt: str, before: LogMark | None) -> LogMark:
    """Begins a log behind all that is there, damaged or not: a position that none of its records can have reached.

    It says that it follows the newest segment and holds nothing: until an epoch names it, readers pass it over."""
    segments = Segments(fs, f"{path}/{names.LOG_DIR}", identity.store_id)
    last = max(segments.numbers(), default=0)
    number = last + 1
    position = (0 if before is None else before.position) + _log_bytes(fs, path, identity)
    file = fs.create(segments.path(number))
    try:
        begin_segment(file, segments, attempt, Link(number, last, position, position), [])
    finally:
        file.close()
    fs.sync_dir(segments.directory)
    return LogMark(number, position)
