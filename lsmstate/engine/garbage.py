"""Garbage: what no retained epoch, no living reader and no unfinished attempt can reach.

A file may go when the epoch in its name is retired and no retained or pinned manifest names it. There is no clock
in this rule: a slow writer's files are safe until their epoch is retired, and then that writer is fenced. Manifests
go before the files that they name. What cannot be proven unreachable stays. Of a write-ahead log goes what lies behind
the published head: no other epoch ever needs any of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from iopool import PoolBusy
from lsmstate.engine.merge_note import noted
from lsmstate.engine.pins import live_pins
from lsmstate.errors import CorruptionError, LsmStateError, SnapshotExpired
from lsmstate.manifest import names

if TYPE_CHECKING:
    from lsmstate.engine.core import Core


_LARGE_BYTES = 1 << 20  # freeing the pages of a file takes about 0.3 ms a MiB


@dataclass
class Collector:
    """What a handle knows of retained manifests, so that each is read once; and what it has removed."""

    reach: dict[str, tuple[str, int, frozenset[str]]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # of files that may have to go
    leaving: set[str] = field(default_factory=set)  # large files that are removed in the background
    unreadable: set[str] = field(default_factory=set)  # torn candidates, or damaged ones
    files_removed: int = 0
    last_error: str | None = None


def collect(core: Core) -> None:
    """Removes garbage. Requires: the write lock, a published head. Never raises: a failure costs space, not rows."""
    head = core.head
    assert head.manifest is not None
    retained = {past.manifest for past in head.version.history} | {head.manifest.name}
    first = head.version.history[0].epoch if head.version.history else head.version.epoch
    _safely(core, lambda: _collect(core, retained, first, _merging(core)))
    log, mark = core.wal, head.version.wal
    if log is not None and mark is not None:
        _safely(core, lambda: log.remove_before(mark.segment))


def retire(core: Core, first: int) -> None:
    """Removes what only epochs before `first` reach, in a state of candidates. As `collect`, it never raises."""

    def work() -> None:
        merging = _merging(core)
        kept = set()
        for name in core.fs.list_dir(core.log.directory):
            parsed = names.parse(name)
            if parsed is not None and parsed.epoch >= first:
                kept.add(name)
        _collect(core, kept, first, merging)

    _safely(core, work)


def _safely(core: Core, work: Callable[[], None]) -> None:
    try:
        work()
    except (OSError, LsmStateError) as error:
        core.collector.last_error = f"{type(error).__name__}: {error}"


def _merging(core: Core) -> set[str]:
    """The files that notes protect. Asked before anything else: a note goes only after a manifest names its file, so
    one that is gone by now has left a manifest that will be seen."""
    return {str(replace(name, kind="sst")) for name in noted(core.fs, core.path)}


def _collect(core: Core, retained: set[str], first: int, merging: set[str]) -> None:
    fs, head, collector = core.fs, core.head, core.collector
    pinned, attempts = live_pins(fs, core.path)
    extra = pinned - retained
    retained |= pinned
    _learn(core, collector, retained, extra)
    reach = collector.reach
    manifests = retained | {reach[name][0] for name in retained if name in reach}
    heads = {reach[name][1] for name in retained if name in reach}
    listed = fs.list_dir(core.log.directory)
    if not core.detached and any((names.parse_head(name) or 0) > head.number for name in listed):
        return  # overtaken: what to keep is for the other one to say
    for name in listed:
        number, parsed = names.parse_head(name), names.parse(name)
        retired_head = number is not None and number < head.number and number not in heads
        retired = parsed is not None and parsed.epoch < first and name not in manifests
        if retired_head or retired:
            _unlink(core, f"{core.log.directory}/{name}")
    if collector.unreadable or live_pins(fs, core.path)[0] - pinned:
        return  # a reader has pinned meanwhile: what it needs is worked out the next time
    directory = f"{core.path}/{names.SST_DIR}"
    used = core.files_in_use().union(*(reach[name][2] for name in retained if name in reach))
    gone, large = set(), set()
    present = set(fs.list_dir(directory))
    collector.sizes = {name: size for name, size in collector.sizes.items() if name in present}
    collector.leaving &= present
    for name in sorted(present):
        parsed = names.parse(name)
        if parsed is None or parsed.epoch >= first or name in used or name in merging or parsed.attempt in attempts:
            continue
        if _is_large(core, name):
            large.add(name)
        elif _unlink(core, f"{directory}/{name}"):
            gone.add(name)
    core.cache.drop(directory, gone)
    collector.files_removed += len(gone)
    if large - collector.leaving:
        leaving = frozenset(large - collector.leaving)
        with contextlib.suppress(PoolBusy):  # they stay until the next time
            core.pool.submit("compaction", lambda: _remove_large(core, directory, leaving), timeout=0.0)
            collector.leaving |= leaving


def _is_large(core: Core, name: str) -> bool:
    """Whether the system takes long to free a file: that is done in the background."""
    known = core.collector.sizes.get(name)
    return known is not None and known >= _LARGE_BYTES


def _remove_large(core: Core, directory: str, names_: frozenset[str]) -> None:
    for name in names_:
        if _unlink(core, f"{directory}/{name}"):
            core.collector.files_removed += 1
    core.cache.drop(directory, set(names_))


def _learn(core: Core, collector: Collector, retained: set[str], pinned: set[str]) -> None:
    """Knows of each retained manifest its base, its head and its files; raises if one cannot be read.

    In a state of candidates a torn one may lie about. It was never complete, and reaches nothing; but a damaged one
    looks the same, and may come back from a copy: while there is one, no file is removed.
    """
    collector.unreadable = set()
    known = {manifest.name: manifest for manifest in (core.head.manifest, core.prepared) if manifest is not None}
    for name in retained - collector.reach.keys():
        try:
            manifest = known.get(name) or core.log.read(name)
        except CorruptionError:
            if not core.detached:
                raise
            collector.unreadable.add(name)
            continue
        except SnapshotExpired:
            if name not in pinned:
                raise
            collector.unreadable.add(name)  # its reader came too late, or just in time: files stay till it goes
            continue
        collector.sizes.update((ref.name, ref.size_bytes) for ref in manifest.version.files.values())
        collector.reach[name] = (manifest.base_name, manifest.publication, frozenset(manifest.version.files))
    for name in collector.reach.keys() - retained:
        del collector.reach[name]


def _unlink(core: Core, path: str) -> bool:
    try:
        core.fs.unlink(path)
    except FileNotFoundError:
        return False  # another collector was faster
    return True
