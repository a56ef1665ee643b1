"""Verify: walks all epochs of a join that can be read, in all partitions; says what is wrong and changes nothing.

A query may go on meanwhile. So what is found is judged at the end by the history of then: what belongs to epochs that
were retired since is no problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from iopool import WorkerPool
from lsmstate.engine import StateStore
from lsmstate.engine.identity import read_identity
from lsmstate.engine.verify import STUMBLES, Problem
from lsmstate.errors import CorruptionError, LsmStateError, SchemaError
from lsmstate.join.barrier import Barrier, barrier_path
from lsmstate.join.candidates import candidates_of, has_all
from lsmstate.join.history import History, history_of
from lsmstate.join.home import JOB, RUNS, Home
from lsmstate.join.lines import Line, newest_line
from lsmstate.join.partition import hash_range
from lsmstate.join.spec import Job
from lsmstate.manifest import names
from lsmstate.manifest.log import ManifestLog

Progress = Callable[[int, int, int], None]  # the partition, how many of its files are done, of how many


@dataclass(frozen=True)
class Verdict:
    """What is wrong, and what was looked at: the epochs that can be read, and their files.

    under_way: the newest epoch if it is not complete, and so was not looked at. torn: the same one, if nothing but
    damaged manifests keeps it from being complete. batch: the batch of Spark that it is.
    """

    problems: list[Problem]
    epochs: list[int]
    files: int
    under_way: int | None
    torn: int | None
    batch: int | None = None


def verify(home: Home, job: Job, progress: Progress) -> Verdict:
    """All problems of the epochs that can be read, of the barriers between them, and of the runs and lines."""
    try:
        prepared = _newest_prepared(home, job, newest_line(home))
    except CorruptionError as error:  # then nobody knows which epochs count
        return Verdict([Problem(error.path, str(error), ())], [], 0, None, None)
    history = history_of(home, job.partitions)
    torn = _torn(home, job, history)
    problems = [*_check_barriers(home, history, prepared), *_check_runs(home, history)]
    files: dict[int, int] = {}

    def told(partition: int, done: int, total: int) -> None:
        files[partition] = total
        progress(partition, done, total)

    pool = WorkerPool()
    try:
        for partition in range(job.partitions):
            problems += _check_partition(home, job, history, partition, pool, told)
    finally:
        pool.close()
    now = history_of(home, job.partitions)
    torn &= _torn(home, job, now)
    problems += [Problem(path, "damaged, or torn by a crash", (now.begun[-1],)) for path in sorted(torn)]
    epochs = [epoch for epoch in history.readable if epoch >= now.first]
    under_way = now.under_way.epoch if now.under_way else None
    batch = None if under_way is None else now.line.batch(under_way)
    still, looked_at = _still_there(problems, now), sum(files.values())
    return Verdict(still, epochs, looked_at, under_way, under_way if torn else None, batch)


def _still_there(problems: list[Problem], now: History) -> list[Problem]:
    found = []
    for problem in problems:
        harmed = tuple(epoch for epoch in problem.epochs if epoch >= now.first)
        if harmed or not problem.epochs:
            found.append(replace(problem, epochs=harmed))
    return found


# ---- between the partitions


def _check_barriers(home: Home, history: History, prepared: int) -> Iterator[Problem]:
    """Each barrier stands on the one before it, and comes before all that is written for its epoch."""
    begun = history.begun
    newest = begun[-1] if begun else 0
    if prepared > newest:
        what = "the file is missing, though partitions have finished this epoch"
        yield Problem(barrier_path(home, prepared, history.line), what, (prepared,))
    surely_kept = history.first if prepared <= newest and newest in history.barriers else newest
    for before, epoch in zip([None, *begun], begun, strict=False):
        path = barrier_path(home, epoch, history.line)
        if epoch in history.damaged:
            lost = tuple(e for e in (before, epoch) if e is not None and e not in history.readable)
            yield Problem(path, str(history.damaged[epoch]), lost)
            continue
        barrier = history.barriers[epoch]
        parent = barrier.parent_epoch
        if parent is not None and parent not in begun and parent >= (before or surely_kept):
            yield Problem(barrier_path(home, parent, history.line), "the file is missing", (parent,))
        elif before is not None and parent != before:
            named = "no epoch" if parent is None else f"epoch {parent}"
            yield Problem(path, f"it builds on {named}, not on epoch {before}, the one before it", (epoch,))
        elif before is not None and before in history.barriers and not _follows(barrier, history.barriers[before]):
            yield Problem(path, "its watermarks do not follow from those of the epoch before", (epoch,))


def _follows(barrier: Barrier, before: Barrier) -> bool:
    """Late is what the epoch before has retired; and no watermark goes back."""
    was, now = before.watermark, barrier.watermark
    return barrier.late_watermark == was and (was is None or (now is not None and now >= was))


def _check_runs(home: Home, history: History) -> Iterator[Problem]:
    """Without its runs a query cannot go on: it would not know that the state is its own."""
    try:
        numbers = home.numbers(RUNS)
    except FileNotFoundError:
        numbers = []
    if not numbers and history.begun:
        yield Problem(f"{home.path}/{RUNS}", "no run of a query is left, though epochs have begun", ())
    for number in numbers:
        try:
            body = home.read(RUNS, f"{number:08d}")
        except CorruptionError as error:
            yield Problem(error.path, str(error), ())
            continue
        path = f"{home.path}/{RUNS}/{number:08d}"
        if body is not None and not all(isinstance(body.get(name), str) for name in ("query", "run")):
            yield Problem(path, "it names no query, or no run", ())
        line = 1 if body is None else body.get("line", 1)
        if type(line) is not int or line > history.line.number:
            yield Problem(path, "it works on a line that is not there", ())


def _newest_prepared(home: Home, job: Job, line: Line) -> int:
    """The newest epoch that any partition has a candidate of; 0 if none has."""
    newest = 0
    for partition in range(job.partitions):
        try:
            listed = home.fs.list_dir(f"{home.partition(partition)}/{names.MANIFEST_DIR}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        parsed = [name for name in map(names.parse, listed) if name is not None]
        newest = max([newest, *(name.epoch for name in parsed if name.line == line.at(name.epoch).number)])
    return newest


def _torn(home: Home, job: Job, history: History) -> set[str]:
    """The damaged manifests of the newest epoch in partitions that have no good one."""
    barrier = history.under_way
    found: set[str] = set()
    if barrier is not None:
        for partition in range(job.partitions):
            good, damaged = candidates_of(home, partition, barrier.epoch, history.line)
            found |= set() if good else set(damaged)
    return found


# ---- in a partition


def _check_partition(
    home: Home, job: Job, history: History, partition: int, pool: WorkerPool, progress: Progress
) -> list[Problem]:
    chosen = {epoch: history.candidates[epoch][partition] for epoch in history.readable}
    if not chosen:
        return []
    path, epochs = home.partition(partition), tuple(chosen)
    state = f"{path}/{names.STATE}"
    if home.fs.kind(path) != "dir":
        return [Problem(path, "the directory of the partition is missing", epochs)]
    if home.fs.kind(state) is None:
        return [Problem(state, "the file is missing", epochs)]
    try:
        store = StateStore.open_candidate(path, None, job.state_sides, read_only=True, fs=home.fs, pool=pool)
    except SchemaError:
        return [Problem(state, f"its sides are not those of {JOB}", epochs)]
    except CorruptionError as error:
        return [Problem(error.path, str(error), epochs)]
    except (LsmStateError, OSError) as error:
        return [Problem(state, str(error), epochs)]
    with store:
        try:
            problems = store.verify(
                lambda _, done, total: progress(partition, done, total),
                candidates=list(chosen.values()),
                hashes=hash_range(partition, job.partitions),
            )
        except STUMBLES as error:  # a hostile file that is true to its checksums
            return [Problem(path, f"the checks end in {type(error).__name__}", epochs)]
    return [*problems, *_check_versions(home, job, history, partition, chosen)]


def _check_versions(
    home: Home, job: Job, history: History, partition: int, chosen: dict[int, str]
) -> Iterator[Problem]:
    """What a task writes into a manifest for its barrier, and for the next one."""
    path = home.partition(partition)
    identity = read_identity(home.fs, path)
    assert identity is not None
    log = ManifestLog(home.fs, path, identity.store_id, len(job.state_sides))
    for epoch, name in chosen.items():
        try:
            version = log.read(name).version
        except (LsmStateError, OSError):
            continue  # told already
        if (version.epoch, version.line) != (epoch, history.line.at(epoch).number):
            yield Problem(f"{log.directory}/{name}", "it is of another epoch than its name says", (epoch,))
        if version.watermark != history.barriers[epoch].watermark:
            yield Problem(f"{log.directory}/{name}", "its watermark is not that of the barrier", (epoch,))
        if not has_all(version.meta):
            yield Problem(f"{log.directory}/{name}", "its run or the newest event times are missing in it", (epoch,))
