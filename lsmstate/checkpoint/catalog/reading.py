"""Rows of the database as the catalog tells them. Functions of a transaction; they change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, and_, select

from lsmstate.checkpoint.catalog.rows import CheckpointRow, JobRow
from lsmstate.checkpoint.catalog.tables import CHECKPOINTS, FENCES, JOBS, SOURCES
from lsmstate.checkpoint.catalog.text import escaped, unescaped, without_credentials
from lsmstate.errors import CatalogError

_JOB = select(JOBS, FENCES.c.name, FENCES.c.incarnation).join(FENCES, JOBS.c.name_key == FENCES.c.name_key)
_LATEST = and_(SOURCES.c.job_id == JOBS.c.job_id, SOURCES.c.checkpoint_id == JOBS.c.latest_checkpoint_id)


def job_row(connection: Connection, key: str, *, changed: bool = False) -> JobRow | None:
    """The job of a name's key; None if there is none."""
    found = connection.execute(_JOB.where(JOBS.c.name_key == key)).one_or_none()
    if found is None:
        return None
    sources = offsets_of(connection, found.job_id, found.latest_checkpoint_id)
    return replace(_job(found), source_checkpoints=sources, changed=changed)


def job_rows(connection: Connection) -> list[JobRow]:
    """All jobs, by name."""
    sources: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(select(SOURCES).join(JOBS, _LATEST)):
        sources.setdefault(row.job_id, []).append(row)
    jobs = map(_job, connection.execute(_JOB))
    whole = [replace(job, source_checkpoints=_offsets(sources.get(job.job_id, ()))) for job in jobs]
    return sorted(whole, key=lambda job: job.name)


def offsets_of(connection: Connection, job_id: str, checkpoint_id: int | None) -> dict[str, dict[str, str]]:
    """The offsets by source at a checkpoint."""
    if checkpoint_id is None:
        return {}
    which = (SOURCES.c.job_id == job_id) & (SOURCES.c.checkpoint_id == checkpoint_id)
    return _offsets(connection.execute(select(SOURCES).where(which)))


def checkpoint_rows(connection: Connection, job_id: str) -> list[CheckpointRow]:
    """All checkpoints of a job, by id."""
    rows = connection.execute(
        select(CHECKPOINTS).where(CHECKPOINTS.c.job_id == job_id).order_by(CHECKPOINTS.c.checkpoint_id)
    )
    return [_checkpoint(row) for row in rows]


def checkpoint_row(connection: Connection, job_id: str, checkpoint_id: int) -> CheckpointRow | None:
    """One checkpoint; None if it is not there."""
    which = (CHECKPOINTS.c.job_id == job_id) & (CHECKPOINTS.c.checkpoint_id == checkpoint_id)
    row = connection.execute(select(CHECKPOINTS).where(which)).one_or_none()
    return None if row is None else _checkpoint(row)


def values_of(checkpoint: CheckpointRow) -> dict[str, Any]:
    """A checkpoint as it is stored."""
    values = {name: getattr(checkpoint, name) for name in CheckpointRow.__dataclass_fields__}
    values["manifest"] = escaped(without_credentials(checkpoint.manifest))
    values["note"] = escaped(without_credentials(checkpoint.note))
    return values


def _job(row: Row[Any]) -> JobRow:
    values = dict(row._mapping)
    del values["name_key"]
    for name in ("name", "comment"):
        values[name] = unescaped(values[name])
    values["definition"] = _parsed(values["definition"])
    return JobRow(**values)


def _checkpoint(row: Row[Any]) -> CheckpointRow:
    values = dict(row._mapping)
    del values["job_id"]
    for name in ("manifest", "note"):
        values[name] = unescaped(values[name])
    try:
        return CheckpointRow(**values)
    except ValueError as error:
        raise _damaged(str(error)) from None


def _offsets(rows: Iterable[Row[Any]]) -> dict[str, dict[str, str]]:
    return {unescaped(row.source): _parsed(row.offsets) for row in sorted(rows, key=lambda row: str(row.source))}


def _parsed(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise _damaged("a document is no JSON object")
    return parsed


def _damaged(what: str) -> CatalogError:
    return CatalogError(f"the catalog holds a row that lsmstate did not write: {what}. Restore a backup", "damaged")
