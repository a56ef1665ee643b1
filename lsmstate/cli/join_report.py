"""All that the home of a join says, as a JSON-able report: what `lsmstate inspect` shows of it.

Reads JOB, barriers, runs, and the manifests of the newest complete epoch; opens no SSTable, takes no pin and changes
nothing. A query may go on meanwhile: if it retires an epoch under the reader, the reader starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iopool import FileSystem
from lsmstate.cli.state_report import describe_side
from lsmstate.engine.identity import read_identity
from lsmstate.errors import CorruptionError, SnapshotExpired
from lsmstate.join.barrier import Barrier
from lsmstate.join.candidates import candidates_of
from lsmstate.join.history import History, history_of
from lsmstate.join.home import RUNS, Home
from lsmstate.join.lines import Line
from lsmstate.join.reading import job_of
from lsmstate.join.spec import SIDES, Job
from lsmstate.manifest.log import ManifestLog
from lsmstate.manifest.version import Version
from lsmstate.refs import RunRef

_TRIES = 5


def describe(fs: FileSystem, path: str) -> dict[str, Any]:
    """The report of a join's state. Raises what reading it raises: damage is for `lsmstate verify` to tell."""
    home = Home(fs, path)
    job = job_of(home)
    for left in reversed(range(_TRIES)):
        history = history_of(home, job.partitions)
        newest = history.readable[-1] if history.readable else None
        chosen = history.candidates[newest] if newest is not None else ()
        try:
            versions = [_version(home, job, number, name) for number, name in enumerate(chosen)]
            break
        except SnapshotExpired as error:
            if not left:
                raise CorruptionError(path, 0, f"the manifests of epoch {newest}", str(error)) from error
    barrier = history.barriers[newest] if newest is not None else None
    return {
        "schema": "lsmstate.inspect-join/1",
        "path": path,
        "job": job.name,
        "partitions": job.partitions,
        "match": job.kind.match,
        "how": job.kind.how,
        "within": {"lower_us": job.kind.lower_us, "upper_us": job.kind.upper_us},
        "newest": None if barrier is None else _begun(barrier, history.line),
        "watermark_us": None if barrier is None else barrier.watermark,
        "rows": sum(run.rows for side in range(len(SIDES)) for run in _runs(versions, side)),
        "files": sum(len(version.files) for version in versions),
        "file_bytes": sum(_bytes(version) for version in versions),
        "sides": [_side(job, number, versions, barrier) for number in _shown(job, versions)],
        "by_partition": [_partition(number, *each) for number, each in enumerate(zip(chosen, versions, strict=True))],
        "epochs": _epochs(history),
        "under_way": _under_way(home, job, history),
        "runs": _query_runs(home),
        "line": _line(history.line),
        "left_behind": [{"line": line, "epochs": epochs} for line, epochs in history.left_behind.items()],
    }


def _shown(job: Job, versions: Sequence[Version]) -> list[int]:
    """Both sides; and of late rows and marks those that there are."""
    others = range(len(SIDES), len(job.state_sides))
    return [*range(len(SIDES)), *(number for number in others if _runs(versions, number))]


def _version(home: Home, job: Job, partition: int, name: str) -> Version:
    path = home.partition(partition)
    identity = read_identity(home.fs, path)
    if identity is None:
        raise CorruptionError(path, 0, f"the state of partition {partition}", "nothing")
    return ManifestLog(home.fs, path, identity.store_id, len(job.state_sides)).read(name).version


def _begun(barrier: Barrier, line: Line) -> dict[str, Any]:
    """An epoch as its barrier tells. Spark counts batches from 0 for each query, we count epochs from 1."""
    return {
        "epoch": barrier.epoch,
        "line": barrier.line,
        "batch": line.batch(barrier.epoch),
        "parent_epoch": barrier.parent_epoch,
        "watermark_us": barrier.watermark,
        "late_watermark_us": barrier.late_watermark,
        "begun_us": barrier.timestamp_ms * 1000,
        "run": barrier.run,
    }


def _place(epoch: int, line: Line) -> dict[str, Any]:
    return {"line": line.at(epoch).number, "batch": line.batch(epoch)}


def _line(line: Line) -> dict[str, Any]:
    """The newest history, and where it starts from."""
    starts = None
    if line.before is not None:
        starts = {"line": line.before.number, "epoch": line.epoch, "made_us": line.timestamp_ms * 1000, "why": line.why}
    return {"number": line.number, "base": line.base, "starts_from": starts}


def _runs(versions: Sequence[Version], side: int | None = None) -> list[RunRef]:
    refs = (ref for version in versions for ref in version.files.values())
    return [run for ref in refs for run in ref.live if side in (None, run.side)]


def _bytes(version: Version) -> int:
    return sum(ref.size_bytes for ref in version.files.values())


def _side(job: Job, number: int, versions: Sequence[Version], barrier: Barrier | None) -> dict[str, Any]:
    """A side in all partitions; its bytes by its share of rows in each file."""
    shared = 0
    for ref in (ref for version in versions for ref in version.files.values()):
        mine, in_file = sum(run.rows for run in ref.live if run.side == number), sum(run.rows for run in ref.live)
        shared += ref.size_bytes * mine // max(in_file, 1)
    watermark = None if barrier is None else barrier.watermark
    told = describe_side(number, job.state_sides[number], _runs(versions, number), watermark)
    return {**told, "approx_bytes": shared}


def _partition(number: int, candidate: str, version: Version) -> dict[str, Any]:
    runs = _runs([version])
    return {
        "partition": number,
        "candidate": candidate,
        "left_rows": version.rows(0),
        "right_rows": version.rows(1),
        "files": len(version.files),
        "bytes": _bytes(version),
        "min_ts_us": min((run.min_ts for run in runs), default=None),
        "max_ts_us": max((run.max_ts for run in runs), default=None),
    }


def _epochs(history: History) -> list[dict[str, Any]]:
    """The epochs that can be read; and those that could be, but for a damaged barrier."""
    found = {epoch: {**_begun(history.barriers[epoch], history.line), "error": None} for epoch in history.readable}
    blank = dict.fromkeys(("parent_epoch", "watermark_us", "late_watermark_us", "begun_us", "run"))
    for epoch, error in history.damaged.items():
        found[epoch] = {"epoch": epoch, **_place(epoch, history.line), **blank, "error": str(error)}
    return [found[epoch] for epoch in sorted(found)]


def _under_way(home: Home, job: Job, history: History) -> dict[str, Any] | None:
    """The newest epoch as long as some partition has not finished it."""
    barrier = history.under_way
    if barrier is None:
        return None
    line = history.line
    found = [candidates_of(home, partition, barrier.epoch, line) for partition in range(job.partitions)]
    return {
        **_begun(barrier, line),
        "finished": [partition for partition, (good, _) in enumerate(found) if good],
        "waiting": [partition for partition, (good, _) in enumerate(found) if not good],
        "damaged": [path for good, bad in found if not good for path in bad],
    }


def _query_runs(home: Home) -> dict[str, Any]:
    """How often a query has been started on the state, and the last time."""
    try:
        numbers = home.numbers(RUNS)
    except FileNotFoundError:
        numbers = []
    told: dict[str, Any] = {"count": numbers[-1] if numbers else 0, "query": None, "run": None, "error": None}
    try:
        last = home.read(RUNS, f"{numbers[-1]:08d}") if numbers else None
    except CorruptionError as error:
        return {**told, "error": str(error)}
    return {**told, **{name: str(last.get(name)) for name in ("query", "run")}} if last else told
