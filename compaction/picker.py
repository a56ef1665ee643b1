"""The picker: what to merge next, as a value. It looks at the shape of the tree and touches nothing.

A flush leaves one run of each side, with rows of several units of time: such files are **mixed**. Once a unit has
settled, its rows are gathered out of all mixed files into one file, which stays as it is until the watermark
retires it whole; the mixed files stay too, less that unit, until their last unit has gone. So a row is usually written
twice. Where mixed runs become many before that, the smallest are merged into one: the two smallest, and with them every
next one that is no larger than those before it together, so that a row is written again only as often as its file
doubles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from compaction.shape import Choice, FileShape, Tree

MIXED_MAX = 12  # mixed runs of a side that are left alone
RUNS_MAX = 32  # runs of a side that a probe may have to look into


def pick(tree: Tree, *, major: bool = False) -> Choice | None:
    """The next merge; None if all is well. A major one goes on until each unit, and all the rest, is one file, without
    removed rows."""
    for side in range(len(tree.horizons)):
        choice = _settled(tree, side)
        if choice is not None:
            return choice
    mixed = [file for file in tree.files if is_mixed(tree, file)]
    if major:
        return _everything(tree, mixed)
    for side in range(len(tree.horizons)):
        held = [file for file in mixed if _runs(file, side)]
        if sum(_runs(file, side) for file in held) > MIXED_MAX:
            choice = _smallest(tree, side, held)
            if choice is not None:
                return choice
    return _half_dead(tree)


def is_mixed(tree: Tree, file: FileShape) -> bool:
    """Whether a file is anything but one settled unit of one side."""
    units = {(run.side, run.first) for run in file.runs} | {(run.side, run.last) for run in file.runs}
    if len(units) != 1:
        return True
    ((side, unit),) = units
    horizon = tree.horizons[side]
    return horizon is None or unit >= horizon.unsettled


def _runs(file: FileShape, side: int) -> int:
    return sum(run.side == side for run in file.runs)


def _settled(tree: Tree, side: int) -> Choice | None:
    """The oldest settled unit of a side that lies in a mixed file, or in several."""
    horizon = tree.horizons[side]
    if horizon is None:
        return None
    held = [(file, run) for file in tree.files for run in file.runs if run.side == side and run.last >= horizon.live]
    units = [max(run.first, horizon.live) for file, run in held if is_mixed(tree, file)]
    whole = Counter(unit for unit, _ in {(run.first, file.name) for file, run in held if not is_mixed(tree, file)})
    units += [unit for unit, files in whole.items() if files > 1 and unit >= horizon.live]
    oldest = min(units, default=horizon.unsettled)
    if oldest >= horizon.unsettled:
        return None
    files = {file.name for file, run in held if run.first <= oldest <= run.last}
    return Choice("a unit of time has settled", tuple(sorted(files)), side, oldest)


def _smallest(tree: Tree, side: int, held: Iterable[FileShape]) -> Choice | None:
    """The smallest of some files."""
    by_size = sorted(held, key=lambda file: (file.size_bytes, file.name))
    chosen: list[FileShape] = []
    for file in by_size:
        if len(chosen) > 1 and file.size_bytes > sum(other.size_bytes for other in chosen):
            break
        chosen.append(file)
    return _worth(tree, side, chosen, "many small runs")


def _everything(tree: Tree, mixed: list[FileShape]) -> Choice | None:
    """All mixed files, or a file that holds removed rows."""
    for side in range(len(tree.horizons)):
        choice = _worth(tree, side, mixed, "all that is not settled")
        if choice is not None:
            return choice
    removed = next((file for file in tree.files if file.has_removed), None)
    return None if removed is None else Choice("it holds removed rows", (removed.name,))


def _half_dead(tree: Tree) -> Choice | None:
    """A file that is half retired, where that is worth it: a sixteenth of all, which units of usual width never are."""
    total = sum(file.size_bytes for file in tree.files)
    for file in tree.files:
        if file.dead_share >= 0.5 and file.dead_share * file.size_bytes * 16 > total and not is_mixed(tree, file):
            return Choice("most of it is retired", (file.name,))
    return None


def _worth(tree: Tree, side: int, files: list[FileShape], why: str) -> Choice | None:
    """A merge of some files, if it leaves fewer runs of a side."""
    rows = sum(run.rows for file in files for run in file.runs if run.side == side)
    if sum(_runs(file, side) for file in files) <= -(-rows // tree.rows_max):
        return None
    return Choice(why, tuple(sorted(file.name for file in files)))
