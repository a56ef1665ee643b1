"""Mistakes in compaction, each made on purpose: the crash tests must find every one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from lsmstate.engine import compactor, garbage, merge
from lsmstate.engine.compactor import Compactor
from lsmstate.engine.merge_note import Merged, adopted
from lsmstate.manifest.version import Version
from lsmstate.refs import FileRef, Tombstone
from tests.support.seeded_bugs import BUGS, Bug, SSTablesNotSynced


def inputs_deleted_when_adopted() -> AbstractContextManager[Any]:
    """Removes what was merged as soon as the merge is adopted, before any manifest says so."""
    adopt = Compactor._adopt_notes

    def too_early(self: Compactor) -> bool:
        core, before = self._core, set(self._core.working.files)
        changed = adopt(self)
        for name in before - set(core.working.files):
            core.fs.unlink(f"{core.sst_directory}/{name}")
        return changed

    return mock.patch.object(Compactor, "_adopt_notes", too_early)


@contextmanager
def merges_collected_before_adoption() -> Iterator[None]:
    """Forgets that a note protects its file, whose epoch may be retired by now, and adopts it without a look at it."""
    with (
        mock.patch.object(garbage, "_merging", return_value=set()),
        mock.patch.object(Compactor, "_is_there", return_value=True),
    ):
        yield


def tombstones_folded_too_early() -> AbstractContextManager[Any]:
    """Takes a tombstone for spent once any file has been rewritten since."""

    def can_kill(self: Tombstone, file: FileRef) -> bool:
        return not file.folded and _can_kill(self, file)

    _can_kill = Tombstone.can_kill
    return mock.patch.object(Tombstone, "can_kill", can_kill)


def merges_stamped_newer_than_their_rows() -> AbstractContextManager[Any]:
    """Takes a merged file for as new as the version that adopts it: what was removed meanwhile comes back."""

    def adopted(version: Version, merged: Merged) -> Version | None:
        added = tuple(ref._replace(folded=version.next_id) for ref in merged.added)
        return _adopted(version, replace(merged, added=added))

    _adopted = compactor.adopted
    return mock.patch.object(compactor, "adopted", adopted)


def retired_rows_of_the_future() -> AbstractContextManager[Any]:
    """Adopts a merge though the version has not come as far: a restore would lose rows."""
    return mock.patch.object(compactor, "adopted", lambda version, merged: _unchecked(version, merged))


def _unchecked(version: Version, merged: Merged) -> Version | None:
    return adopted(version, replace(merged, watermark=None, tombstones=()))


def ties_in_the_order_of_files() -> AbstractContextManager[Any]:
    """Merges by hash alone: rows with one key are no longer in the order of their times."""
    return mock.patch.object(merge, "merge_order", lambda hashes, ts, ids: np.argsort(hashes, kind="stable"))


BUGS |= {
    "merged file not synced": Bug("small_runs_are_merged", SSTablesNotSynced),
    "compaction: inputs deleted before the adoption is durable": Bug(
        "small_runs_are_merged", patch=inputs_deleted_when_adopted
    ),
    "compaction: merge collected before it is adopted": Bug("a_merge_waits", patch=merges_collected_before_adoption),
    "compaction: tombstone dropped too early": Bug(
        "rows_are_removed_before_a_merge_is_adopted", patch=tombstones_folded_too_early
    ),
    "compaction: rows stamped with a newer epoch": Bug(
        "rows_are_removed_before_a_merge_is_adopted", patch=merges_stamped_newer_than_their_rows
    ),
    "compaction: adopted by a version that has not come as far": Bug(
        "a_merge_is_overtaken_by_a_restore", patch=retired_rows_of_the_future
    ),
    "compaction: order of equal hashes lost": Bug("equal_keys_are_merged", patch=ties_in_the_order_of_files),
}
