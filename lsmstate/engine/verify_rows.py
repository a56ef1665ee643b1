"""No row twice, and of each run as many rows as an epoch says are left: checked in every epoch, each thing once.

Epochs share most of their files. So the parts of an epoch are put into groups whose ids overlap, by the bounds that
`verify` has checked already: only inside a group can a row be twice, and a group that epochs share is read once. The
ids of one group are held at a time. Threading: none. Requires for all: files without problems of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lsmstate.errors import SnapshotExpired
from lsmstate.manifest.version import Version
from lsmstate.refs import FileRef, RunRef

if TYPE_CHECKING:
    from lsmstate.engine.core import Core

Ids = np.ndarray[tuple[int], np.dtype[np.uint64]]


class _Part(NamedTuple):
    """What is read of one run."""

    file: FileRef
    number: int
    left: RunRef


def check_rows(core: Core, versions: Sequence[Version]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What is wrong with the rows of epochs as a whole, and in which of them."""
    users: dict[tuple[_Part, ...], list[int]] = {}
    for version in versions:
        for group in _groups(_parts(version)):
            users.setdefault(group, []).append(version.epoch)
    told: dict[str, set[int]] = {}
    for group, epochs in users.items():
        try:
            for what in _check_group(core, group):
                told.setdefault(what, set()).update(epochs)
        except (FileNotFoundError, SnapshotExpired):  # retired meanwhile
            continue
    for what, harmed in told.items():
        yield what, tuple(sorted(harmed))


def _parts(version: Version) -> list[_Part]:
    parts = []
    for ref in version.files.values():
        whole = ref._replace(left=None, folded=0)
        parts += [_Part(whole, number, left) for number, left in enumerate(ref.parts) if left is not None]
    return parts


def _groups(parts: list[_Part]) -> Iterator[tuple[_Part, ...]]:
    """Parts whose ids overlap, directly or through others."""
    group: list[_Part] = []
    reached = -1
    for part in sorted(parts, key=lambda part: (_bounds(part).min_id, part)):
        if group and _bounds(part).min_id > reached:
            yield tuple(group)
            group = []
        group.append(part)
        reached = max(reached, _bounds(part).max_id)
    if group:
        yield tuple(group)


def _bounds(part: _Part) -> RunRef:
    return part.file.runs[part.number]


def _check_group(core: Core, group: Sequence[_Part]) -> Iterator[str]:
    found: list[Ids] = []
    for file, number, left in group:
        run = core.cache.get(core.fs, core.sst_directory, file, core.sides_by_number).runs[number]
        ids = run.ids() if left == run.ref else run.ids()[run.times() >= left.min_ts]
        if len(ids) != left.rows:
            yield f"{left.rows} rows are said to be left of a run of {file.name}, and it is {len(ids)}"
        found.append(ids)
    together = np.sort(np.concatenate(found))
    if (together[1:] == together[:-1]).any():
        yield "a row is there twice"
