"""Mistakes in the protocol, each made on purpose: the crash tests must find every one.

A bug is either a file system between store and disk that does not do what it is told, or a patch of the engine. Each
names the workload that meets it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from iopool import FileSystem, WritableFile
from lsmstate.engine import epochs, garbage
from lsmstate.engine.core import Core
from lsmstate.engine.memtable import Memtable
from lsmstate.manifest import log, names
from lsmstate.manifest.log import Head, Manifest
from lsmstate.manifest.version import Version
from tests.support.simfs import SimFileSystem


@dataclass(frozen=True)
class Bug:
    """One mistake: the workload that shows it, and how it is made."""

    case: str
    seen: Callable[[SimFileSystem], FileSystem] | None = None
    patch: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


class Lying:
    """A file system that does as it is told; bugs are what subclasses do otherwise."""

    def __init__(self, disk: SimFileSystem) -> None:
        self.disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)


class FilesNotSynced(Lying):
    """Forgets the fsync of files in one directory."""

    directory = ""

    def create(self, path: str) -> WritableFile:
        file = self.disk.create(path)
        if f"/{self.directory}/" in path:
            file.sync = lambda: None
        return file


class SSTablesNotSynced(FilesNotSynced):
    directory = names.SST_DIR


class ManifestsNotSynced(FilesNotSynced):
    directory = names.MANIFEST_DIR


class FilesSyncedLate(Lying):
    """Puts the fsync of files in one directory off until a head is linked: `before` it, or right after."""

    directory, before = "", True

    def __init__(self, disk: SimFileSystem) -> None:
        super().__init__(disk)
        self._waiting: list[Callable[[], None]] = []

    def create(self, path: str) -> WritableFile:
        file = self.disk.create(path)
        if f"/{self.directory}/" in path:
            self._waiting += [file.sync, file.close]
            file.sync = file.close = lambda: None
        return file

    def link(self, source: str, target: str) -> None:
        if self.before:
            self._catch_up()
        self.disk.link(source, target)
        self._catch_up()

    def _catch_up(self) -> None:
        for act in self._waiting:
            act()
        self._waiting.clear()


class PrepareBeforeFlush(FilesSyncedLate):
    directory = names.SST_DIR


class PublishBeforeCandidate(FilesSyncedLate):
    directory, before = names.MANIFEST_DIR, False


class SSTableNamesNotSynced(Lying):
    def sync_dir(self, path: str) -> None:
        if not path.endswith(f"/{names.SST_DIR}"):
            self.disk.sync_dir(path)


class DirectoriesOfCreationNotSynced(Lying):
    def sync_dir(self, path: str) -> None:
        if path.endswith((f"/{names.SST_DIR}", f"/{names.MANIFEST_DIR}")):
            self.disk.sync_dir(path)


class ManifestNamesNotSynced(Lying):
    """Forgets one of the two fsyncs of the manifests' directory: of the candidate's name, or of the head's."""

    forgets_head = False

    def __init__(self, disk: SimFileSystem) -> None:
        super().__init__(disk)
        self._linked = False

    def link(self, source: str, target: str) -> None:
        self.disk.link(source, target)
        self._linked = True

    def sync_dir(self, path: str) -> None:
        linked, self._linked = self._linked, False
        if not path.endswith(f"/{names.MANIFEST_DIR}") or linked != self.forgets_head:
            self.disk.sync_dir(path)


class HeadNamesNotSynced(ManifestNamesNotSynced):
    forgets_head = True


class HeadWrittenInPlace(Lying):
    """Writes the head's bytes under its name instead of linking a file that is whole."""

    def link(self, source: str, target: str) -> None:
        if "/head-" not in target:
            self.disk.link(source, target)
            return
        file = self.disk.create(target)
        file.write([self.disk.read(source, 1 << 20)])
        file.sync()
        file.close()


class HeadReplaced(Lying):
    """Removes the old head before it links the new one."""

    def link(self, source: str, target: str) -> None:
        directory, _, name = target.rpartition("/")
        if names.parse_head(name) is not None:
            for other in self.disk.list_dir(directory):
                if names.parse_head(other) is not None:
                    self.disk.unlink(f"{directory}/{other}")
        self.disk.link(source, target)


def history_not_retained() -> AbstractContextManager[Any]:
    """Collects as if only the head could be opened."""

    def collect(core: Core) -> None:
        head = core.head
        assert head.manifest is not None
        alone = replace(head.manifest, version=replace(head.version, history=()))
        core.head = Head(head.number, alone)
        garbage.collect(core)
        core.head = head

    return mock.patch.object(epochs, "collect", collect)


@contextlib.contextmanager
def unfinished_epochs_collected() -> Iterator[None]:
    """Collects as if every epoch were retired: also files that the next epoch is about to name."""

    def parse(name: str) -> names.Name | None:
        parsed = _parse(name)
        return parsed and replace(parsed, epoch=0)

    _parse, shim = names.parse, mock.Mock(wraps=names)
    shim.parse, shim.SST_DIR = parse, names.SST_DIR
    with mock.patch.object(garbage, "names", shim):
        yield


def collected_before_publication() -> AbstractContextManager[Any]:
    """Collects what the new epoch retires before the new epoch is there."""
    publish = epochs._publish

    def too_early(core: Core, manifest: Manifest) -> None:
        head = core.head
        core.head = Head(head.number + 1, manifest)
        garbage.collect(core)
        core.head = head
        publish(core, manifest)

    return mock.patch.object(epochs, "_publish", too_early)


def bases_collected() -> AbstractContextManager[Any]:
    """Forgets that a delta leans on a full manifest."""
    learn = garbage._learn

    def without_bases(core: Core, *given: Any) -> None:
        learn(core, *given)
        reach = core.collector.reach
        for name, (_, *rest) in list(reach.items()):
            reach[name] = (name, *rest)

    return mock.patch.object(garbage, "_learn", without_bases)


def restored_in_memory_only() -> AbstractContextManager[Any]:
    def restore(core: Core, epoch: int) -> None:
        past = epochs.find_epoch(core, epoch)
        core.head = Head(core.head.number, past)
        core.working, core.sealed, core.memtable = past.version, (), Memtable()

    return mock.patch.object(epochs, "restore", restore)


def left_out_of_manifests(**lost: object) -> Callable[[], AbstractContextManager[Any]]:
    """Writes manifests without something."""
    encode = log.encode_version

    def without(version: Version, base: Version | None) -> dict[str, Any]:
        return encode(version, base) | lost

    return lambda: mock.patch.object(log, "encode_version", without)


BUGS: dict[str, Bug] = {
    "sstable not synced": Bug("plain_epochs", SSTablesNotSynced),
    "directory of sstables not synced": Bug("plain_epochs", SSTableNamesNotSynced),
    "manifest not synced": Bug("plain_epochs", ManifestsNotSynced),
    "candidate's directory not synced before publishing": Bug("plain_epochs", ManifestNamesNotSynced),
    "head's directory not synced before acknowledging": Bug("plain_epochs", HeadNamesNotSynced),
    "published before the candidate is durable": Bug("plain_epochs", PublishBeforeCandidate),
    "head written in place": Bug("plain_epochs", HeadWrittenInPlace),
    "head replaced instead of followed": Bug("plain_epochs", HeadReplaced),
    "prepared before the flush is durable": Bug("prepare_then_commit", PrepareBeforeFlush),
    "directories of a new state not synced": Bug("creation", DirectoriesOfCreationNotSynced),
    "garbage: retained epochs": Bug("garbage_of_two_epochs", patch=history_not_retained),
    "garbage: files of the next epoch": Bug("spill_after_prepare", patch=unfinished_epochs_collected),
    "garbage: before publication": Bug("garbage_of_two_epochs", patch=collected_before_publication),
    "garbage: bases of deltas": Bug("garbage_of_two_epochs", patch=bases_collected),
    "restored in memory only": Bug("restore", patch=restored_in_memory_only),
    "tombstones not recorded": Bug("remove", patch=left_out_of_manifests(tombstones=[])),
    "watermark not recorded": Bug("watermark", patch=left_out_of_manifests(watermark=None)),
}
