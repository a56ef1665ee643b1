"""The history of a join: which epochs have begun, which of them can be read, and what of it is damaged.

Reads barriers, and candidates where no barrier tells which of them counts; changes nothing. The newest line counts:
what older ones have written after it started is left behind. A query may go on meanwhile: then some epochs that are
told have been retired since, and those from `first` on have not when it was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from lsmstate.errors import CorruptionError, EpochError
from lsmstate.join.barrier import Barrier, barrier_path, epochs_begun, epochs_left_behind, read_barrier
from lsmstate.join.candidates import candidates_of, complete
from lsmstate.join.home import Home
from lsmstate.join.lines import Line, newest_line


@dataclass(frozen=True)
class History:
    """The epochs of a join at one moment.

    first: the first one that is kept. barriers: of the epochs from there on, ascending. damaged: why others of them
    cannot be read. candidates: those that count, one for each partition, of every complete epoch. line: the newest.
    left_behind: epochs of older lines that are no part of it.
    """

    first: int
    barriers: Mapping[int, Barrier]
    damaged: Mapping[int, CorruptionError]
    candidates: Mapping[int, tuple[str, ...]]
    line: Line
    left_behind: Mapping[int, list[int]]

    @property
    def begun(self) -> list[int]:
        """All epochs that are kept, complete or not, ascending."""
        return sorted([*self.barriers, *self.damaged])

    @property
    def readable(self) -> list[int]:
        """The epochs that can be read, ascending."""
        return [epoch for epoch in sorted(self.candidates) if epoch in self.barriers]

    @property
    def under_way(self) -> Barrier | None:
        """The barrier of the newest epoch if it is not complete."""
        begun = self.begun
        return None if not begun or begun[-1] in self.candidates else self.barriers.get(begun[-1])


def history_of(home: Home, partitions: int) -> History:
    """What is known of all epochs. Never raises for a damaged barrier, only for a damaged line."""
    line = newest_line(home)
    left_behind: dict[int, list[int]] = {}
    try:
        begun = epochs_begun(home, line)
        left_behind = epochs_left_behind(home, line)
    except FileNotFoundError:  # copies of a new state tend to lose empty directories
        begun = []
    barriers: dict[int, Barrier] = {}
    damaged: dict[int, CorruptionError] = {}
    for epoch in begun:
        try:
            barrier = read_barrier(home, epoch, line)
        except CorruptionError as error:
            damaged[epoch] = error
            continue
        if barrier is not None and len(barrier.parents) not in (0, partitions):
            expected, got = f"parents in {partitions} partitions", len(barrier.parents)
            damaged[epoch] = CorruptionError(barrier_path(home, epoch, line), 0, expected, got)
        elif barrier is not None:
            barriers[epoch] = barrier
    first = max([barrier.min_epoch for barrier in barriers.values()] + [each.min_epoch for each in line.chain()])
    named = {barrier.parent_epoch: barrier.parents for barrier in barriers.values()}
    candidates: dict[int, tuple[str, ...]] = {}
    for epoch in begun:
        told = line.chosen(epoch) or named.get(epoch)
        chosen = told or _chosen(home, partitions, epoch, line, newest=epoch == begun[-1])
        if chosen and epoch >= first:
            candidates[epoch] = chosen
    return History(
        first,
        {epoch: barrier for epoch, barrier in barriers.items() if epoch >= first},
        {epoch: error for epoch, error in damaged.items() if epoch >= first},
        candidates,
        line,
        left_behind,
    )


def _chosen(home: Home, partitions: int, epoch: int, line: Line, *, newest: bool) -> tuple[str, ...] | None:
    """The candidates of an epoch that no barrier names: those that the next barrier would name; or, where that one is
    damaged, those that it must have named, because there are no others."""
    if newest:
        with suppress(EpochError):  # under way, or cut short
            return tuple(candidate.name for candidate in complete(home, partitions, epoch, line))
        return None
    found = [candidates_of(home, partition, epoch, line)[0] for partition in range(partitions)]
    return tuple(each[0].name for each in found) if all(len(each) == 1 for each in found) else None
