"""`lsmstate checkpoints JOB`: which checkpoints there are of a job, and where its sources stood at each."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from iopool import LocalFileSystem
from lsmstate.cli.catalog_option import add_catalog, every_text, job_named, label, opened
from lsmstate.cli.jobs import describe as describe_job
from lsmstate.cli.jobs import state_of
from lsmstate.cli.terminal import Cell, Commands, console, fields, heading, table, write_json
from lsmstate.cli.wording import count_text, cut, size_text, time_text
from lsmstate.errors import LsmStateError
from lsmstate.join.history import history_of
from lsmstate.join.home import Home, is_home
from lsmstate.join.reading import job_of

if TYPE_CHECKING:
    from lsmstate.checkpoint.catalog import Catalog, CheckpointRow, JobRow

_OFFSET_MAX = 200
_STATUS = {
    "committed": "can be restored",
    "left_behind": "left behind",
    "retired": "retired",
    "unreadable": "the state cannot be read",
}


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "checkpoints",
        help="the checkpoints of a job: epochs, sizes, watermarks, and the offsets of its sources",
        description="Shows the checkpoints of a job that its catalog knows, and which of them can be restored.",
    )
    parser.add_argument("job", metavar="JOB", help="the name of the job")
    add_catalog(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the report."""
    with opened(arguments) as catalog:
        report = describe(catalog, job_named(catalog, arguments.job))
    if arguments.json:
        write_json(report)
    else:
        _show(report)
    return 0


def describe(catalog: Catalog, job: JobRow) -> dict[str, Any]:
    """The checkpoints of a job, the oldest first."""
    readable, problem = epochs_of_state(job)
    told = []
    for row in catalog.checkpoints(job.name):
        sources = catalog.source_checkpoints(job.name, row.checkpoint_id)
        told.append({**_row(row, readable, problem), "sources": sources})
    own = describe_job(job)
    report = {"schema": "lsmstate.checkpoints/1", "catalog": label(catalog), "job": own, "problem": problem}
    return {**report, "checkpoints": told}


def epochs_of_state(job: JobRow) -> tuple[set[int] | None, str | None]:
    """The epochs of a Spark job's state that can be read, and why that is not known; both None for other jobs."""
    if job.kind != "spark":
        return None, None
    fs, path = LocalFileSystem(), state_of(job)
    try:
        if path is None or not is_home(fs, path):
            return None, f"there is no state of a join in {path}"
        home = Home(fs, path)
        return set(history_of(home, job_of(home).partitions).readable), None
    except (LsmStateError, OSError) as error:
        return None, str(error)


def _row(row: CheckpointRow, readable: set[int] | None, problem: str | None) -> dict[str, Any]:
    status: str = row.status
    if status == "committed" and problem is not None:
        status = "unreadable"
    elif status == "committed" and readable is not None and row.epoch not in readable:
        status = "retired"
    return {
        "checkpoint_id": row.checkpoint_id,
        "epoch": row.epoch,
        "line": row.line,
        "timestamp_us": row.timestamp_ms * 1000,
        "size_bytes": row.size_bytes,
        "watermark_us": row.watermark,
        "is_incremental": row.is_incremental,
        "status": status,
        "manifest": row.manifest,
        "note": row.note,
    }


def _show(report: dict[str, Any]) -> None:
    out, job = console(), report["job"]
    heading(out, f"Job {job['name']} in the catalog {report['catalog']}")
    every = every_text(job["checkpoint_interval_ms"])
    latest = "none yet"
    if job["latest_checkpoint_id"] is not None:
        latest = (
            f"epoch {job['latest_checkpoint_epoch']} on line {job['line']}, checkpoint {job['latest_checkpoint_id']}"
        )
    pairs = [("kind", job["kind"]), ("latest", latest), ("every", every), ("state", job["state"] or "")]
    if report["problem"] is not None:
        pairs.append(("NOTE", report["problem"]))
    fields(out, pairs)
    found = report["checkpoints"]
    if not found:
        return
    heading(out, f"{count_text(len(found), 'checkpoint')}: lsmstate restore {job['name']} --epoch EPOCH")
    columns = (">id", ">epoch", ">line", "=taken\nwatermark", ">size", "status")
    table(out, columns, [_cells(each) for each in found])
    heading(out, "Where its sources stood")
    rows = [
        [str(each["epoch"]), str(each["line"]), cut(name, _OFFSET_MAX), _offset_text(offsets)]
        for each in found
        for name, offsets in each["sources"].items()
    ]
    table(out, (">epoch", ">line", "source", "offset"), rows)


def _cells(each: dict[str, Any]) -> list[Cell]:
    status = _STATUS.get(each["status"], each["status"])
    return [
        str(each["checkpoint_id"]),
        str(each["epoch"]),
        str(each["line"]),
        (time_text(each["timestamp_us"]), time_text(each["watermark_us"])),
        size_text(each["size_bytes"]),
        status if not each["note"] else (status, each["note"]),
    ]


def _offset_text(told: dict[str, str]) -> str:
    if not told:
        return "unknown"
    whole = " ".join(told.values()) if len(told) == 1 else ", ".join(f"{key}={value}" for key, value in told.items())
    return cut(whole, _OFFSET_MAX)
