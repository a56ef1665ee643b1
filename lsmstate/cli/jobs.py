"""`lsmstate jobs`: the jobs that a catalog knows, and where each of them stands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lsmstate.cli.catalog_option import add_catalog, every_text, label, opened
from lsmstate.cli.terminal import Commands, console, fields, heading, table, write_json
from lsmstate.cli.wording import count_text, time_text

if TYPE_CHECKING:
    from lsmstate.checkpoint.catalog import JobRow


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "jobs",
        help="the jobs that a catalog knows, and where each of them stands",
        description="Shows the jobs of a catalog: what they are, their latest checkpoint, and where their state lies.",
    )
    add_catalog(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the report."""
    with opened(arguments) as catalog:
        jobs = [describe(job) for job in catalog.jobs()]
        report = {"schema": "lsmstate.jobs/1", "catalog": label(catalog), "jobs": jobs}
    if arguments.json:
        write_json(report)
        return 0
    out = console()
    heading(out, f"{count_text(len(jobs), 'job')} in the catalog {report['catalog']}")
    if jobs:
        columns = ("job", "kind", ">epoch", ">line", ">every", "=created", "state")
        table(out, columns, [_cells(job) for job in jobs])
        fields(out, [("", "see `lsmstate checkpoints JOB` for the checkpoints of one")])
    return 0


def describe(job: JobRow) -> dict[str, Any]:
    """A job as JSON."""
    return {
        "name": job.name,
        "job_id": job.job_id,
        "kind": job.kind,
        "created_us": job.created_ms * 1000,
        "comment": job.comment,
        "checkpoint_interval_ms": job.checkpoint_interval_ms,
        "latest_checkpoint_epoch": job.latest_checkpoint_epoch,
        "latest_checkpoint_id": job.latest_checkpoint_id,
        "source_checkpoints": {name: dict(told) for name, told in job.source_checkpoints.items()},
        "line": job.line,
        "incarnation": job.incarnation,
        "state": state_of(job),
        "definition": dict(job.definition),
    }


def state_of(job: JobRow) -> str | None:
    """Where the state of a job lies, as its definition tells."""
    told = job.definition.get("state")
    return told if isinstance(told, str) else None


def _cells(job: dict[str, Any]) -> list[str]:
    epoch = str(job["latest_checkpoint_epoch"]) if job["latest_checkpoint_id"] is not None else "none"
    every = every_text(job["checkpoint_interval_ms"])
    line, created = str(job["line"]), time_text(job["created_us"])
    return [job["name"], job["kind"], epoch, line, every, created, job["state"] or ""]
