"""Mistakes in the protocol of the write-ahead log, each made on purpose: the tests must find every one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from iopool import FileSystem, WritableFile
from lsmstate.engine import epochs
from lsmstate.engine.core import Core
from lsmstate.engine.wal import WriteAheadLog
from lsmstate.engine.wal_chain import Chain, Segments
from lsmstate.manifest.log import Manifest
from lsmstate.manifest.version import LogMark
from tests.support.seeded_bugs import Lying
from tests.support.simfs import SimFileSystem


@dataclass(frozen=True)
class Bug:
    """One mistake: the workload that shows it, and how it is made."""

    workload: str
    seen: Callable[[SimFileSystem], FileSystem] | None = None
    patch: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


class RecordsNotSynced(Lying):
    def create(self, path: str) -> WritableFile:
        file = self.disk.create(path)
        if "/wal/" in path:
            begun, sync = [], file.sync

            def once() -> None:
                if not begun:  # what the segment begins with is synced, and nothing after that
                    begun.append(True)
                    sync()

            file.sync = once
        return file


class NamesNotSynced(Lying):
    def sync_dir(self, path: str) -> None:
        if not path.endswith("/wal"):
            self.disk.sync_dir(path)


@contextlib.contextmanager
def acknowledged_before_the_fsync() -> Iterator[None]:
    with mock.patch.object(WriteAheadLog, "sync", return_value=None):
        yield


@contextlib.contextmanager
def position_before_the_flush() -> Iterator[None]:
    """The epoch names the place that the one before named: its rows come twice."""

    def stale(core: Core) -> LogMark | None:
        return core.head.version.wal or (core.wal.mark() if core.wal else None)

    with mock.patch.object(epochs, "_log_mark", stale):
        yield


@contextlib.contextmanager
def position_of_the_commit() -> Iterator[None]:
    """The epoch names the place that the log has reached when it is committed: what came after prepare is lost."""
    publish = epochs._publish

    def late(core: Core, manifest: Manifest) -> None:
        if core.wal is not None and core.prepared is manifest:
            version = replace(manifest.version, wal=core.wal.mark())
            manifest = core.log.write_candidate(version, core.attempt, core.next_number(), core.head)
        publish(core, manifest)

    with mock.patch.object(epochs, "_publish", late):
        yield


@contextlib.contextmanager
def removed_at_prepare() -> Iterator[None]:
    """What an epoch holds is dropped from the log before the epoch is committed."""
    prepare = epochs.prepare

    def early(core: Core, epoch: int, meta: Any) -> Manifest:
        manifest = prepare(core, epoch, meta)
        assert core.wal is not None
        assert manifest.version.wal is not None
        core.wal.remove_before(manifest.version.wal.segment)
        return manifest

    with mock.patch.object(epochs, "prepare", early):
        yield


@contextlib.contextmanager
def what_was_read_is_taken_for_synced() -> Iterator[None]:
    """A handle goes on after records that can be read, and may not be on disk."""
    chain = Segments.chain

    def trusting(segments: Segments, before: int, start: LogMark | None) -> Chain:
        found = chain(segments, before, start)
        return replace(found, synced=found.end)

    with mock.patch.object(Segments, "chain", trusting):
        yield


@contextlib.contextmanager
def candidate_published_without_replay() -> Iterator[None]:
    """What was logged after a prepare is forgotten by the handle that commits it."""
    replay = epochs.replay

    def not_again(core: Core) -> None:
        core.replayed = core.moment()

    with mock.patch.object(epochs, "replay", not_again):
        yield
    assert epochs.replay is replay


BUGS = {
    "records are not synced": Bug("plain", RecordsNotSynced),
    "names of segments are not synced": Bug("plain", NamesNotSynced),
    "acknowledged before the fsync": Bug("plain", patch=acknowledged_before_the_fsync),
    "position taken before the flush": Bug("plain", patch=position_before_the_flush),
    "position taken at the commit": Bug("plain", patch=position_of_the_commit),
    "log removed at prepare": Bug("plain", patch=removed_at_prepare),
    "what was read is taken for synced": Bug("handles", patch=what_was_read_is_taken_for_synced),
    "candidate published without replay": Bug("handles", patch=candidate_published_without_replay),
}
