"""Reading the state of a join at an epoch, beside the query that writes it or without any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from iopool import FileSystem, LocalFileSystem
from lsmstate.engine import StateStore, View
from lsmstate.errors import EpochError, NotAStateError, SnapshotExpired
from lsmstate.join.barrier import Barrier
from lsmstate.join.history import History, history_of
from lsmstate.join.home import JOB, Home
from lsmstate.join.spec import SIDES, Job
from lsmstate.schema import Side

_TRIES = 5
_READABLE = (*SIDES, *(f"{side}_late" for side in SIDES))  # in the order of the sides of a state


@dataclass(frozen=True)
class EpochState:
    """An epoch that is complete in all partitions: which candidate it is in each, and its barrier."""

    home: Home
    epoch: int
    candidates: tuple[str, ...]
    barrier: Barrier
    job: Job

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of the states of all partitions."""
        return self.job.state_sides

    @contextmanager
    def partition(self, number: int) -> Iterator[StateStore]:
        """The state of a partition at this epoch, to read."""
        path, fs, line = self.home.partition(number), self.home.fs, self.barrier.line
        with StateStore.open_candidate(
            path, self.candidates[number], self.sides, line=line, read_only=True, fs=fs
        ) as store:
            yield store


def read_state(path: str | os.PathLike[str], epoch: int | None = None, side: str = "left") -> pa.Table:
    """The rows of one side of a join's state, as they were after an epoch; the newest unless told.

    `left_late` and `right_late` are the rows that came too late, where late="keep" keeps them."""
    if side not in _READABLE:
        raise ValueError(f"side must be one of {', '.join(_READABLE)}, not {side!r}")
    fs, number = LocalFileSystem(), _READABLE.index(side)
    tries = _TRIES if epoch is None else 1
    while True:
        tries -= 1
        found = state_at(fs, fs.resolve(os.fspath(path)), epoch)
        with ExitStack() as stack:
            try:
                views = _views(found, stack)
            except SnapshotExpired:
                if not tries:
                    raise
                continue  # the query went on, and has newer ones
            batches = [batch for view in views for batch in view.scan(number)]
            return pa.Table.from_batches(batches, schema=found.sides[number].schema)


def _views(found: EpochState, stack: ExitStack) -> list[View]:
    """Views of all partitions, taken before any is read, so that none is retired while another one is."""
    stores = [stack.enter_context(found.partition(number)) for number in range(len(found.candidates))]
    return [stack.enter_context(store.snapshot()) for store in stores]


def state_at(fs: FileSystem, path: str, epoch: int | None) -> EpochState:
    """A complete epoch of a join's state; the newest unless told."""
    home = Home(fs, path)
    job = job_of(home)
    history = history_of(home, job.partitions)
    if epoch is None:
        epoch = _newest(path, history)
    readable_epoch(path, history, epoch)
    return EpochState(home, epoch, history.candidates[epoch], history.barriers[epoch], job)


def readable_epoch(path: str, history: History, epoch: int) -> None:
    """Raises unless an epoch can be read, and says why it cannot."""
    if epoch in history.damaged:
        raise history.damaged[epoch]
    if epoch in history.readable:
        return
    known = ", ".join(map(str, history.readable)) or "none yet"
    why = "is not complete" if epoch in history.barriers else "does not exist, or was retired"
    behind = [line for line, epochs in history.left_behind.items() if epoch in epochs]
    if behind and epoch not in history.barriers:
        why = f"was left behind with line {behind[-1]}, when the state was taken back to epoch {history.line.epoch}"
    raise EpochError(f"{path}: epoch {epoch} {why}; those that can be read are: {known}")


def _newest(path: str, history: History) -> int:
    """The newest complete epoch. Raises if damage may hide a newer one."""
    newest = history.readable[-1] if history.readable else None
    hidden = [epoch for epoch in history.damaged if newest is None or epoch > newest]
    if hidden:
        raise history.damaged[hidden[-1]]
    if newest is None:
        raise EpochError(f"{path}: no epoch is complete yet, so there is nothing to read")
    return newest


def job_of(home: Home) -> Job:
    """What a state is bound to. Raises NotAStateError if it is no state of a join."""
    told = home.job()
    if told is None:
        raise NotAStateError(f"{home.path}: is no state of a join; name the directory that was given as state=")
    return Job.parse(f"{home.path}/{JOB}", told)
