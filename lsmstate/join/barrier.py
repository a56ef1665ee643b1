"""The barrier of an epoch: what every task of it, and every re-run of it, goes by.

The first task of epoch N to arrive decides it from what is on disk, and publishes it; all others obey. It names the
parent (the newest complete epoch below N, and which candidate of it in every partition), the watermarks for lateness
and for eviction, and from which epoch on history is kept. So all partitions agree, whoever retries, and no clock is
asked. Parents come from the same line only; but the first barrier of a line builds on the epoch that it starts from.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from lsmstate.errors import CorruptionError, EpochError, FencedError, LsmStateError
from lsmstate.join.candidates import complete, manifests_of
from lsmstate.join.home import BARRIERS, Home
from lsmstate.join.lines import Line, newest_line
from lsmstate.join.pace import Pace, Seen, step
from lsmstate.join.runs import Run
from lsmstate.join.spec import JoinSpec
from lsmstate.manifest import names

_NAME = re.compile(r"([0-9]{6})-([0-9]{12})")


@dataclass(frozen=True)
class Barrier:
    """What holds for one epoch in all partitions. `run` is the one that decided it."""

    epoch: int
    min_epoch: int
    line: int
    run: int
    timestamp_ms: int
    parent_epoch: int | None
    parents: tuple[str, ...]  # the manifest of each partition; empty without a parent
    late_watermark: int | None
    watermark: int | None
    seen: tuple[Seen, Seen] = ((0, None), (0, None))  # of each side, up to the parent
    idle: tuple[int, ...] = ()  # the sides that the watermark does not wait for
    newest: tuple[int | None, int | None] = (None, None)  # times of each side, up to the parent

    def parent(self, partition: int) -> str | None:
        """The candidate that a partition starts from; None if it starts empty."""
        return self.parents[partition] if self.parents else None


def barrier_of(home: Home, spec: JoinSpec, epoch: int, run: Run) -> Barrier:
    """The barrier of an epoch on the line of a run, decided now if nobody has."""
    while True:
        barrier = read_barrier(home, epoch, run.line)
        if barrier is not None:
            home.settle(BARRIERS)  # who published it may have died before it was durable
            _check_not_back(home, barrier, run)
            return barrier
        decided = _decide(home, spec, epoch, run)
        home.publish(BARRIERS, _name(run.line, epoch), asdict(decided))


def read_barrier(home: Home, epoch: int, line: Line | None = None) -> Barrier | None:
    """The barrier of an epoch in a history, the newest unless told; None if it has not begun."""
    line = line or newest_line(home)
    body = home.read(BARRIERS, _name(line, epoch))
    if body is None:
        return None
    path = barrier_path(home, epoch, line)
    try:
        seen = tuple((last, other) for last, other in body["seen"])
        lists = {name: tuple(body[name]) for name in ("parents", "idle", "newest")}
        told = {**lists, "seen": seen}
        barrier = Barrier(**{**body, **told})
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(path, 0, "a barrier", type(error).__name__) from error
    if not _makes_sense(barrier, epoch, line):
        raise CorruptionError(path, 0, f"the barrier of epoch {epoch}", "what cannot be one")
    return barrier


def barrier_path(home: Home, epoch: int, line: Line | None = None) -> str:
    """Where the barrier of an epoch lies."""
    return f"{home.path}/{BARRIERS}/{_name(line or newest_line(home), epoch)}"


def _makes_sense(barrier: Barrier, epoch: int, line: Line) -> bool:
    """Whether it is of the epoch that its name says, and all that it says can be."""
    told, parent = barrier, barrier.parent_epoch
    whole = (told.epoch, told.min_epoch, told.line, told.run, told.timestamp_ms)
    maybe = (parent, told.late_watermark, told.watermark)
    if any(type(n) is not int for n in whole) or any(n is not None and type(n) is not int for n in maybe):
        return False
    if len(told.seen) != 2 or not all(type(last) is int and type(ts) in (int, type(None)) for last, ts in told.seen):
        return False
    if any(side not in (0, 1) for side in told.idle):
        return False
    if len(told.newest) != 2 or any(type(ts) not in (int, type(None)) for ts in told.newest):
        return False
    if (told.epoch, told.line) != (epoch, line.at(epoch).number) or not 1 <= told.min_epoch <= epoch:
        return False
    if parent is None:
        return not told.parents
    named = [names.parse(name) if isinstance(name, str) else None for name in told.parents]
    builds_on = (parent, line.at(parent).number)
    return bool(named) and parent < epoch and all(n is not None and (n.epoch, n.line) == builds_on for n in named)


def epochs_begun(home: Home, line: Line | None = None) -> list[int]:
    """The epochs of a history that have begun, the newest unless told; ascending."""
    line = line or newest_line(home)
    return sorted(epoch for number, epoch in _begun(home) if number == line.at(epoch).number)


def epochs_left_behind(home: Home, line: Line) -> dict[int, list[int]]:
    """The epochs of older lines that are no part of a history, and have not been retired yet."""
    found: dict[int, list[int]] = {}
    for number, epoch in _begun(home):
        if number < line.number and number != line.at(epoch).number:
            found.setdefault(number, []).append(epoch)
    return {number: sorted(epochs) for number, epochs in sorted(found.items())}


def _begun(home: Home) -> list[tuple[int, int]]:
    matches = (_NAME.fullmatch(name) for name in home.listed(BARRIERS))
    return [(int(m[1]), int(m[2])) for m in matches if m is not None]


@contextmanager
def retiring(home: Home, barrier: Barrier, partition: int) -> Iterator[bool]:
    """Whether epochs of a partition may be retired: not while another does, or while a line is made.

    Raises FencedError if there is a newer line: it may start from what would be retired."""
    lock = home.lock(partition)
    if lock is None:
        yield False
        return
    try:
        newest = newest_line(home)
        if newest.number != barrier.line:
            raise FencedError(
                f"{home.path}: the state was taken back to epoch {newest.epoch} while epoch {barrier.epoch} of line "
                f"{barrier.line} was under way; that line is left behind"
            )
        yield True
    finally:
        lock.release()


def retire_barriers(home: Home, min_epoch: int) -> None:
    """Removes the barriers of epochs that nobody can open any more, of all lines."""
    for name in home.listed(BARRIERS):
        match = _NAME.fullmatch(name)
        if match is not None and int(match[2]) < min_epoch:
            home.remove(BARRIERS, name)


def _decide(home: Home, spec: JoinSpec, epoch: int, run: Run) -> Barrier:
    now_ms, line = time.time_ns() // 1_000_000, run.line
    lies_on = line.at(epoch).number
    begun = [e for e in epochs_begun(home, line) if e < epoch]
    if not begun:
        if epoch != 1:
            raise LsmStateError(
                f"{home.path}: the query is at batch {line.batch(epoch)}, and the barriers of all batches before it "
                "are gone: bring back a copy of the state, or start anew with another state= and checkpointLocation"
            )
        return Barrier(epoch, 1, lies_on, run.number, now_ms, None, (), None, None)
    last = begun[-1]
    _check_no_barrier_is_lost(home, spec.partitions, last, epoch, line)
    if last != epoch - 1:
        before, batch = line.batch(last), line.batch(epoch)
        raise EpochError(
            f"{home.path}: batch {before + 1} was never evaluated, and its rows are not in the state: the last batch "
            f"that was is {before}, and this is batch {batch}. Evaluate every batch in foreachBatch, also those "
            "whose result is not wanted; start anew with another state= and checkpointLocation"
        )
    chosen = complete(home, spec.partitions, last, line)
    for partition, candidate in enumerate(chosen):  # its writer may have died before it did
        directory = f"{home.partition(partition)}/{names.MANIFEST_DIR}"
        home.fs.sync_file(f"{directory}/{candidate.name}")
        home.fs.sync_dir(directory)
    before_it = read_barrier(home, last, line)
    if before_it is None:
        raise EpochError(f"{home.path}: the barrier of epoch {last} was removed meanwhile; a newer run works here")
    paced = step(spec.pace, last, [candidate.meta for candidate in chosen], before_it.watermark, before_it.seen)
    kept = [*begun, epoch][-spec.retain :]
    parents = tuple(candidate.name for candidate in chosen)
    first = max(kept[0], before_it.min_epoch, line.min_epoch)  # what is retired stays so, though more be kept now
    marks = (before_it.watermark, paced.watermark)
    return Barrier(
        epoch, first, lies_on, run.number, now_ms, last, parents, *marks, paced.seen, paced.idle, paced.newest
    )


def moves_on(home: Home, partitions: int, pace: Pace) -> bool | None:
    """Whether one more epoch would have a later watermark than the newest; None while that one is not complete."""
    line = newest_line(home)
    begun = epochs_begun(home, line)
    barrier = read_barrier(home, begun[-1], line) if begun else None
    if barrier is None:
        return None
    try:
        chosen = complete(home, partitions, barrier.epoch, line)
    except EpochError:
        return None
    paced = step(pace, barrier.epoch, [candidate.meta for candidate in chosen], barrier.watermark, barrier.seen)
    return paced.watermark != barrier.watermark


def _check_no_barrier_is_lost(home: Home, partitions: int, last: int, epoch: int, line: Line) -> None:
    """Raises if a partition has work of an epoch after the last barrier: to go on would lose its rows."""
    for partition in range(partitions):
        for name in manifests_of(home, partition):
            parsed = names.parse(name)
            if parsed is None or not last < parsed.epoch < epoch:
                continue
            if parsed.line == line.at(parsed.epoch).number:
                raise EpochError(
                    f"{home.path}: the barrier of epoch {parsed.epoch} is gone, though partition {partition} has "
                    "worked on it; bring back a copy of the state"
                )


def _check_not_back(home: Home, barrier: Barrier, run: Run) -> None:
    """Spark re-runs at most its last batch. An older one means that its checkpoint is older than the state."""
    later = [epoch for epoch in epochs_begun(home, run.line) if epoch > barrier.epoch]
    if later and run.number > barrier.run:
        batch, newest = run.line.batch(barrier.epoch), run.line.batch(later[-1])
        raise LsmStateError(
            f"{home.path}: Spark is at batch {batch}, the state at batch {newest}: the checkpoint "
            "is older than the state. Bring back the checkpoint that belongs to it. Asynchronous progress tracking "
            "causes this too, and cannot be used with stream_join"
        )


def _name(line: Line, epoch: int) -> str:
    return f"{line.at(epoch).number:06d}-{epoch:012d}"
