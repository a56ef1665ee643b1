"""The steps that the catalog's changes are made of: who may, which number comes next, what goes forward.

Functions of a write transaction. Invariant: a change begins with `fenced_job` or `lock_fence`, which lock the row of
the job's fence till the transaction ends; so the changes of one job happen one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Connection, Row, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from lsmstate.checkpoint.catalog.reading import checkpoint_row, job_row, values_of
from lsmstate.checkpoint.catalog.rows import CheckpointRow, JobRow
from lsmstate.checkpoint.catalog.tables import CHECKPOINTS, FENCES, JOBS, SOURCES
from lsmstate.checkpoint.catalog.text import escaped, key_of
from lsmstate.errors import CatalogError, EpochError, FencedError

Sources = Mapping[str, tuple[str, str]]  # the key of a source's name: its name and its offsets as they are stored


def make_fence(connection: Connection, name: str) -> None:
    """Makes the fence of a name that was never used."""
    values = {"name_key": key_of(name), "name": escaped(name), "incarnation": 0, "last_checkpoint_id": 0}
    if connection.dialect.name == "sqlite":
        connection.execute(sqlite.insert(FENCES).values(values).on_conflict_do_nothing())
    else:
        connection.execute(postgresql.insert(FENCES).values(values).on_conflict_do_nothing())


def lock_fence(connection: Connection, key: str) -> Row[Any] | None:
    """The fence of a name, locked; None if the name was never used."""
    return connection.execute(select(FENCES).where(FENCES.c.name_key == key).with_for_update()).one_or_none()


def unknown(name: str) -> CatalogError:
    """There is no such job."""
    return CatalogError(f"there is no job {shown(name)} in the catalog; register it first", "unknown_job")


def fenced_job(connection: Connection, name: str, incarnation: int) -> tuple[JobRow, int]:
    """The job, locked, and the last checkpoint id that it was given. Raises FencedError if another drives it."""
    key = key_of(name)
    fence = lock_fence(connection, key)
    if fence is None:
        raise unknown(name)
    job = job_row(connection, key)
    require_current(name, incarnation, fence.incarnation, job is not None)
    assert job is not None
    return job, int(fence.last_checkpoint_id)


def require_current(name: str, incarnation: int, current: int, is_there: bool) -> None:
    """Raises FencedError unless the incarnation is the current one of a job that is there."""
    if current == incarnation and is_there:
        return
    why = f"is driven by incarnation {current}" if is_there else "was dropped"
    raise FencedError(f"job {shown(name)}: {why}, this is incarnation {incarnation}. Nothing was changed; stop here")


def bump(connection: Connection, name: str, column: Column[Any]) -> int:
    """The next number of a fence. Requires: the fence is locked."""
    mine = FENCES.c.name_key == key_of(name)
    connection.execute(update(FENCES).where(mine).values({column: column + 1}))
    return int(connection.execute(select(column).where(mine)).scalar_one())


def is_repeated(connection: Connection, job: JobRow, checkpoint: CheckpointRow, sources: Sources) -> bool:
    """Whether the checkpoint is committed already, with the same content. Raises EpochError if with another."""
    found = checkpoint_row(connection, job.job_id, checkpoint.checkpoint_id)
    if found is None:
        return False
    which = (SOURCES.c.job_id == job.job_id) & (SOURCES.c.checkpoint_id == checkpoint.checkpoint_id)
    rows = connection.execute(select(SOURCES).where(which))
    same = {row.source_key: (row.source, row.offsets) for row in rows} == dict(sources)
    if same and values_of(found) == values_of(checkpoint):
        return True
    raise EpochError(
        f"job {shown(job.name)}: checkpoint {checkpoint.checkpoint_id} was committed before, as {found.status} epoch "
        f"{found.epoch} of line {found.line} and with other content; an attempt needs an id of its own"
    )


def require_forward(job: JobRow, last_id: int, checkpoint: CheckpointRow) -> None:
    """Raises EpochError unless the checkpoint goes forward from where the job stands."""
    told = f"job {shown(job.name)}: checkpoint {checkpoint.checkpoint_id} of epoch {checkpoint.epoch}"
    if checkpoint.line != job.line:
        raise EpochError(f"{told} belongs to line {checkpoint.line}, the job is in line {job.line}")
    if checkpoint.epoch <= job.latest_checkpoint_epoch:
        raise EpochError(f"{told} does not go forward: epoch {job.latest_checkpoint_epoch} is committed")
    if checkpoint.checkpoint_id > last_id:
        raise EpochError(f"{told} has an id that was never given out, the last was {last_id}")
    if checkpoint.checkpoint_id <= (job.latest_checkpoint_id or 0):
        raise EpochError(f"{told} is older than checkpoint {job.latest_checkpoint_id}, which is committed")


def add_checkpoint(connection: Connection, job: JobRow, checkpoint: CheckpointRow, sources: Sources) -> None:
    """Writes a checkpoint, the offsets of its sources, and that the job stands there."""
    connection.execute(insert(CHECKPOINTS).values(job_id=job.job_id, **values_of(checkpoint)))
    mine = {"job_id": job.job_id, "checkpoint_id": checkpoint.checkpoint_id}
    rows = [mine | {"source_key": k, "source": name, "offsets": text} for k, (name, text) in sources.items()]
    if rows:
        connection.execute(insert(SOURCES), rows)
    point(connection, job, checkpoint.epoch, checkpoint.checkpoint_id, job.line)


def point(connection: Connection, job: JobRow, epoch: int, checkpoint_id: int | None, line: int) -> None:
    """Says where the job stands."""
    values = {"latest_checkpoint_epoch": epoch, "latest_checkpoint_id": checkpoint_id, "line": line}
    connection.execute(update(JOBS).where(JOBS.c.job_id == job.job_id).values(**values))


def shown(name: str) -> str:
    """A name as messages show it: escaped, and cut if it is long."""
    text = ascii(name)
    return text if len(text) <= 200 else f"{text[:190]}...({len(name):,} characters)"
