"""Restore: takes the state of a join back to an epoch, by a new line that starts from it.

Nothing is removed: what came after the epoch is left behind, and goes as its epochs are retired. The queries that
worked before are fenced from the moment the line is published. While that is done the locks of all partitions are held,
so that no task that is still under way retires what the line starts from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from lsmstate.engine.identity import read_identity
from lsmstate.errors import CorruptionError, EpochError, FencedError, LsmStateError
from lsmstate.join.history import History, history_of
from lsmstate.join.home import LINES, RUNS, Home
from lsmstate.join.lines import LINES_MAX, Line, line_name
from lsmstate.join.reading import job_of, readable_epoch
from lsmstate.join.runs import queries_of, read_run
from lsmstate.join.spec import Job
from lsmstate.manifest import names
from lsmstate.manifest.log import ManifestLog

_PATIENCE_S = 30.0
_LOOK_AGAIN_S = 0.02


def restore(home: Home, epoch: int, why: str, sleep: Callable[[float], None] = time.sleep) -> Line:
    """A new line that starts from an epoch that can be read; the one that is there if nobody has worked on it yet.

    Raises EpochError if the epoch cannot be read, and CorruptionError if files of it are missing."""
    job = job_of(home)
    readable_epoch(home.path, history_of(home, job.partitions), epoch)
    home.fs.make_dir(f"{home.path}/{LINES}")
    home.fs.sync_dir(home.path)
    with _locks(home, job.partitions, sleep):
        history = history_of(home, job.partitions)
        line = history.line
        if line.before is not None and line.epoch == epoch and not _is_used(home, line):
            home.settle(LINES)
            return line
        readable_epoch(home.path, history, epoch)
        _check_it_is_all_there(home, job, history, epoch)
        made = _line(home, history, epoch, why)
        if not home.publish(LINES, line_name(made.number), made.describe()):
            raise FencedError(f"{home.path}: another restore was faster; look at the state, and try again")
        return made


def _line(home: Home, history: History, epoch: int, why: str) -> Line:
    line = history.line
    number = line.number + 1
    if number > LINES_MAX:
        raise LsmStateError(f"{home.path}: was taken back {LINES_MAX} times; start anew with another state=")
    queries = tuple(sorted({*line.queries, *queries_of(home)}))
    candidates, first = history.candidates[epoch], min(history.first, epoch)
    now_ms = time.time_ns() // 1_000_000
    return Line(number, line.at(epoch), epoch, epoch, candidates, first, now_ms, why, queries)


def _is_used(home: Home, line: Line) -> bool:
    """Whether a run has worked on a line."""
    numbers = home.numbers(RUNS)
    return bool(numbers) and int(read_run(home, numbers[-1])["line"]) >= line.number


def _check_it_is_all_there(home: Home, job: Job, history: History, epoch: int) -> None:
    """Raises unless the manifests of an epoch and all files that they name are there; and makes the names durable."""
    for partition, name in enumerate(history.candidates[epoch]):
        path = home.partition(partition)
        identity = read_identity(home.fs, path)
        if identity is None:
            raise CorruptionError(path, 0, f"the state of partition {partition}", "nothing")
        log = ManifestLog(home.fs, path, identity.store_id, len(job.state_sides))
        files = log.read(name).version.files
        missing = sorted(set(files) - set(home.fs.list_dir(f"{path}/{names.SST_DIR}")))
        if missing:
            raise CorruptionError(f"{path}/{names.SST_DIR}/{missing[0]}", 0, f"a file of epoch {epoch}", "no such file")
        home.fs.sync_file(f"{log.directory}/{name}")
        home.fs.sync_dir(log.directory)


@contextmanager
def _locks(home: Home, partitions: int, sleep: Callable[[float], None]) -> Iterator[None]:
    """Holds the locks of all partitions: no task retires anything meanwhile."""
    with ExitStack() as stack:
        waited = 0.0
        for partition in range(partitions):
            while (lock := home.lock(partition)) is None:
                if waited >= _PATIENCE_S:
                    raise EpochError(
                        f"{home.path}: a task keeps partition {partition} locked; stop the query, and try again"
                    )
                sleep(_LOOK_AGAIN_S)
                waited += _LOOK_AGAIN_S
            stack.callback(lock.release)
        yield
