"""`lsmstate restore JOB --epoch N`: takes a job back to a checkpoint, and says how to start it from there.

Of a job on Spark the state gets a new line, then the catalog is told; whoever is interrupted in between repeats the
command. Of a pipeline only the catalog is told: it goes on from there by itself when it is started.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any

from iopool import LocalFileSystem
from lsmstate.cli.catalog_option import add_catalog, job_named, label, opened
from lsmstate.cli.checkpoints import epochs_of_state
from lsmstate.cli.jobs import state_of
from lsmstate.cli.seeking import seek, undo
from lsmstate.cli.terminal import Commands, console, fields, heading, write_json
from lsmstate.cli.wording import epochs_text, safe
from lsmstate.errors import CatalogError, EpochError, LsmStateError, NotAStateError
from lsmstate.join.history import history_of
from lsmstate.join.home import CHECKPOINTS, Home
from lsmstate.join.reading import job_of
from lsmstate.join.restore import restore

if TYPE_CHECKING:
    from lsmstate.checkpoint.catalog import Catalog, CheckpointRow, JobRow

OFFSET = "offset"


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "restore",
        help="takes a job back to a checkpoint, and says how to start it from there",
        description="Takes a job back to a checkpoint. Stop the job first. What came after it is left behind.",
    )
    parser.add_argument("job", metavar="JOB", help="the name of the job")
    parser.add_argument("--epoch", metavar="N", type=int, required=True, help="the epoch of the checkpoint")
    add_catalog(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Restores, and prints what to do next."""
    with opened(arguments) as catalog:
        job = job_named(catalog, arguments.job)
        row = _checkpoint(catalog, job, arguments.epoch)
        if not arguments.yes and not _agrees(job, row):
            sys.stderr.write("lsmstate: nothing was changed\n")
            return 2
        report = _restored(catalog, job, row)
    if arguments.json:
        write_json(report)
    else:
        _show(report)
    return 0


def _checkpoint(catalog: Catalog, job: JobRow, epoch: int) -> CheckpointRow:
    """The checkpoint of an epoch that can be restored. Raises EpochError with those that can."""
    readable, problem = epochs_of_state(job)
    if problem is not None:
        raise NotAStateError(f"job {job.name!r}: {problem}")
    rows = [row for row in catalog.checkpoints(job.name) if row.status == "committed"]
    can = {row.epoch: row for row in rows if readable is None or row.epoch in readable}
    if epoch in can:
        return can[epoch]
    why = "has no checkpoint"
    if any(row.epoch == epoch for row in rows):
        why = "has a checkpoint, but was retired from the state (see retain=)"
    raise EpochError(f"job {job.name!r}: epoch {epoch} {why}; those that can be restored: {epochs_text(can)}")


def _agrees(job: JobRow, row: CheckpointRow) -> bool:
    """Asks, if there is somebody to ask."""
    told = (
        f"Take job {safe(job.name)} back from epoch {job.latest_checkpoint_epoch} to epoch {row.epoch}? Stop it first."
    )
    if not sys.stdin.isatty():
        raise LsmStateError(f"{told} Nobody is there to ask: repeat it with --yes")
    sys.stderr.write(f"{told} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _restored(catalog: Catalog, job: JobRow, row: CheckpointRow) -> dict[str, Any]:
    sources = catalog.source_checkpoints(job.name, row.checkpoint_id)
    report: dict[str, Any] = {
        "schema": "lsmstate.restore/1",
        "catalog": label(catalog),
        "job": job.name,
        "kind": job.kind,
        "epoch": row.epoch,
        "checkpoint_id": row.checkpoint_id,
        "left_behind": [],
        "state": state_of(job),
    }
    if job.kind != "spark":
        after = sorted({each.epoch for each in catalog.checkpoints(job.name) if _is_left(each, row)})
        catalog.rewind(job.name, catalog.take(job.name), row.epoch, job.line + 1)
        told = [{"source": name, "offset": dict(offsets), "can_seek": True} for name, offsets in sources.items()]
        return {**report, "line": job.line + 1, "left_behind": after, "sources": told, "sinks": []}
    return {**report, **_of_spark(catalog, job, row, sources)}


def _is_left(each: CheckpointRow, row: CheckpointRow) -> bool:
    return each.status == "committed" and each.epoch > row.epoch


def _of_spark(catalog: Catalog, job: JobRow, row: CheckpointRow, sources: dict[str, dict[str, str]]) -> dict[str, Any]:
    from lsmstate.checkpoint.manifest.store import ManifestStore

    path = state_of(job)
    assert path is not None  # `epochs_of_state` has looked into it
    home = Home(LocalFileSystem(), path)
    before = history_of(home, job_of(home).partitions)
    batch, newest = before.line.batch(row.epoch), before.begun[-1]
    line = restore(home, row.epoch, f"lsmstate restore {job.name} --epoch {row.epoch}")
    try:
        catalog.rewind(job.name, catalog.take(job.name), row.epoch, line.number)
    except CatalogError as error:
        raise CatalogError(
            f"{error}. The state is taken back, the catalog is not: repeat the command", error.reason
        ) from None
    manifest = ManifestStore(home.fs, f"{path}/{CHECKPOINTS}").load(row.checkpoint_id)
    is_same = before.line.at(newest) == before.line.at(row.epoch)
    last = before.line.batch(newest) if is_same else None
    sinks = () if manifest is None else manifest.sink_names
    return {
        "line": line.number,
        "batch": batch,
        "left_behind": list(range(row.epoch + 1, newest + 1)),
        "sources": [seek(name, told.get(OFFSET), batch) for name, told in sources.items()],
        "sinks": [{"sink": name, "how": undo(name, batch, last)} for name in sinks],
    }


def _show(report: dict[str, Any]) -> None:
    out = console()
    heading(out, f"Job {report['job']} is back at epoch {report['epoch']}, on line {report['line']}")
    left = report["left_behind"]
    pairs = [("left behind", epochs_text(left))] if left else []
    if report["kind"] != "spark":
        fields(out, [*pairs, ("next", "start the job: it goes on from there, its sources and its state too")])
        return
    pairs += [
        ("next", "start the query with a new checkpointLocation: the old one belongs to what is left behind"),
        ("look", f"lsmstate inspect {shlex.quote(str(report['state']))}"),
    ]
    fields(out, pairs)
    heading(out, "Where its sources start again")
    for source in report["sources"]:
        can = {True: "can seek", False: "CANNOT SEEK", None: "see what it can"}[source["can_seek"]]
        fields(out, [("source", source["source"]), ("", can), ("", source["how"])])
    heading(out, "What its sinks hold of what is left behind")
    for sink in report["sinks"]:
        fields(out, [("sink", sink["sink"]), ("", sink["how"])])
