"""The barrier of an epoch: what every task of it, and every re-run of it, goes by.

The first task of epoch N to arrive decides it from what is on disk, and publishes it; all others obey. It names the
parent (the newest complete epoch below N, and which candidate of it in every partition), the watermarks for lateness
and for eviction, and from which epoch on history is kept. So all partitions agree, whoever retries, and no clock is
asked.
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

from lsmstate.errors import CorruptionError, EpochError, LsmStateError
from lsmstate.join.home import BARRIERS, Home
from lsmstate.join.pace import Pace, Seen, step
from lsmstate.join.spec import JoinSpec
from lsmstate.manifest import names
from lsmstate.manifest.codec import DOCUMENT_MAX_BYTES, decode

LINE = 1  # a history; going back to an older epoch will start another
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A complete candidate of an epoch in a partition, and what its task left in it."""

    name: str
    meta: dict[str, Any]

    @property
    def run(self) -> int:
        """The run of the query that made it."""
        return int(self.meta["run"])


def barrier_of(home: Home, spec: JoinSpec, epoch: int, run: int) -> Barrier:
    """The barrier of an epoch, decided now if nobody has."""
    while True:
        barrier = read_barrier(home, epoch)
        if barrier is not None:
            home.settle(BARRIERS)  # who published it may have died before it was durable
            _check_not_back(home, barrier, run)
            return barrier
        decided = _decide(home, spec, epoch, run)
        home.publish(BARRIERS, _name(epoch), asdict(decided))


def read_barrier(home: Home, epoch: int) -> Barrier | None:
    """The barrier of an epoch; None if it has not begun."""
    body = home.read(BARRIERS, _name(epoch))
    if body is None:
        return None
    try:
        seen = tuple((last, other) for last, other in body["seen"])
        lists = {name: tuple(body[name]) for name in ("parents", "idle", "newest")}
        told = {**lists, "seen": seen}
        barrier = Barrier(**{**body, **told})
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(barrier_path(home, epoch), 0, "a barrier", type(error).__name__) from error
    if not _makes_sense(barrier, epoch):
        raise CorruptionError(barrier_path(home, epoch), 0, f"the barrier of epoch {epoch}", "what cannot be one")
    return barrier


def barrier_path(home: Home, epoch: int) -> str:
    """Where the barrier of an epoch lies."""
    return f"{home.path}/{BARRIERS}/{_name(epoch)}"


def _makes_sense(barrier: Barrier, epoch: int) -> bool:
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
    if (told.epoch, told.line) != (epoch, LINE) or not 1 <= told.min_epoch <= epoch:
        return False
    if parent is None:
        return not told.parents
    named = [names.parse(name) if isinstance(name, str) else None for name in told.parents]
    return bool(named) and parent < epoch and all(n is not None and (n.epoch, n.line) == (parent, LINE) for n in named)


def epochs_begun(home: Home) -> list[int]:
    """The epochs that have begun, ascending."""
    matches = (_NAME.fullmatch(name) for name in home.listed(BARRIERS))
    return sorted(int(m[2]) for m in matches if m is not None and int(m[1]) == LINE)


def retire_barriers(home: Home, min_epoch: int) -> None:
    """Removes the barriers of epochs that nobody can open any more."""
    for epoch in epochs_begun(home):
        if epoch < min_epoch:
            home.remove(BARRIERS, _name(epoch))


def candidates_of(home: Home, partition: int, epoch: int) -> tuple[list[Candidate], list[str]]:
    """The complete candidates of an epoch in a partition; and the paths of those that cannot be read."""
    directory = f"{home.partition(partition)}/{names.MANIFEST_DIR}"
    found, damaged = [], []
    for name in _listed(home, partition):
        parsed = names.parse(name)
        if parsed is None or (parsed.epoch, parsed.line) != (epoch, LINE):
            continue
        path = f"{directory}/{name}"
        try:
            meta = decode(path, home.fs.read(path, DOCUMENT_MAX_BYTES), name)[1].get("meta")
        except FileNotFoundError:
            continue
        except CorruptionError:
            damaged.append(path)  # torn by a crash, and so never complete; or damaged since
            continue
        if has_all(meta):
            found.append(Candidate(name, meta))
        else:
            damaged.append(path)
    return found, damaged


def has_all(meta: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a task has left what the next barrier needs: its run, and of each side the newest event time, or None,
    and how many rows came."""
    if not isinstance(meta, dict) or type(meta.get("run")) is not int:
        return False
    times, rows = meta.get("max_ts"), meta.get("rows")
    if not isinstance(rows, list) or len(rows) != 2 or any(type(count) is not int for count in rows):
        return False
    return isinstance(times, list) and len(times) == 2 and all(ts is None or type(ts) is int for ts in times)


def complete(home: Home, partitions: int, epoch: int) -> list[Candidate]:
    """One complete candidate of an epoch for each partition. Raises EpochError where there is none.

    Those of the newest run count: a run that repeats an epoch repeats it in all partitions, and should its input differ
    (as it may after asynchronous progress tracking), then what came of it is still of one piece.
    """
    chosen, missing, damaged = [], [], []
    for partition in range(partitions):
        found, bad = candidates_of(home, partition, epoch)
        damaged += bad
        if found:
            chosen.append(max(found, key=lambda candidate: candidate.run))
        else:
            missing.append(partition)
    if not missing:
        return chosen
    told = (
        f"{home.path}: epoch {epoch} (batch {epoch - 1}) is not complete: partitions {missing} have not finished it. "
    )
    if damaged:
        raise EpochError(told + f"There are damaged manifests: {', '.join(damaged)}; bring back a copy of them")
    raise EpochError(
        told + "Was the result cut short downstream, by `limit`, `head`, `take` or `show`, or its tasks joined by "
        "`coalesce`? Then its rows are not in the state: write all of the result, or filter it (and use `repartition` "
        "for fewer files), and start anew with another state= and checkpointLocation"
    )


def _decide(home: Home, spec: JoinSpec, epoch: int, run: int) -> Barrier:
    now_ms = time.time_ns() // 1_000_000
    begun = [e for e in epochs_begun(home) if e < epoch]
    if not begun:
        if epoch != 1:
            raise LsmStateError(
                f"{home.path}: the query is at batch {epoch - 1}, and the barriers of all batches before it are gone: "
                "bring back a copy of the state, or start anew with another state= and checkpointLocation"
            )
        return Barrier(epoch, 1, LINE, run, now_ms, None, (), None, None)
    last = begun[-1]
    _check_no_barrier_is_lost(home, spec.partitions, last, epoch)
    if last != epoch - 1:
        raise EpochError(
            f"{home.path}: batch {last} was never evaluated, and its rows are not in the state: the last batch that "
            f"was is {last - 1}, and this is batch {epoch - 1}. Evaluate every batch in foreachBatch, also those "
            "whose result is not wanted; start anew with another state= and checkpointLocation"
        )
    chosen = complete(home, spec.partitions, last)
    for partition, candidate in enumerate(chosen):  # its writer may have died before it did
        directory = f"{home.partition(partition)}/{names.MANIFEST_DIR}"
        home.fs.sync_file(f"{directory}/{candidate.name}")
        home.fs.sync_dir(directory)
    before = read_barrier(home, last)
    if before is None:
        raise EpochError(f"{home.path}: the barrier of epoch {last} was removed meanwhile; a newer run works here")
    paced = step(spec.pace, last, [candidate.meta for candidate in chosen], before.watermark, before.seen)
    kept = [*begun, epoch][-spec.retain :]
    parents = tuple(candidate.name for candidate in chosen)
    first = max(kept[0], before.min_epoch)  # what is retired stays so, though more be kept from now on
    marks = (before.watermark, paced.watermark)
    return Barrier(epoch, first, LINE, run, now_ms, last, parents, *marks, paced.seen, paced.idle, paced.newest)


def moves_on(home: Home, partitions: int, pace: Pace) -> bool | None:
    """Whether one more epoch would have a later watermark than the newest; None while that one is not complete."""
    begun = epochs_begun(home)
    barrier = read_barrier(home, begun[-1]) if begun else None
    if barrier is None:
        return None
    try:
        chosen = complete(home, partitions, barrier.epoch)
    except EpochError:
        return None
    paced = step(pace, barrier.epoch, [candidate.meta for candidate in chosen], barrier.watermark, barrier.seen)
    return paced.watermark != barrier.watermark


def _check_no_barrier_is_lost(home: Home, partitions: int, last: int, epoch: int) -> None:
    """Raises if a partition has work of an epoch after the last barrier: to go on would lose its rows."""
    for partition in range(partitions):
        for name in _listed(home, partition):
            parsed = names.parse(name)
            if parsed is not None and parsed.line == LINE and last < parsed.epoch < epoch:
                raise EpochError(
                    f"{home.path}: the barrier of epoch {parsed.epoch} is gone, though partition {partition} has "
                    "worked on it; bring back a copy of the state"
                )


def _listed(home: Home, partition: int) -> list[str]:
    """The names of a partition's manifests; none if it does not exist."""
    try:
        return sorted(home.fs.list_dir(f"{home.partition(partition)}/{names.MANIFEST_DIR}"))
    except FileNotFoundError:
        return []


def _check_not_back(home: Home, barrier: Barrier, run: int) -> None:
    """Spark re-runs at most its last batch. An older one means that its checkpoint is older than the state."""
    later = [epoch for epoch in epochs_begun(home) if epoch > barrier.epoch]
    if later and run > barrier.run:
        raise LsmStateError(
            f"{home.path}: Spark is at batch {barrier.epoch - 1}, the state at batch {later[-1] - 1}: the checkpoint "
            "is older than the state. Bring back the checkpoint that belongs to it. Asynchronous progress tracking "
            "causes this too, and cannot be used with stream_join"
        )


def _name(epoch: int) -> str:
    return f"{LINE:06d}-{epoch:012d}"
