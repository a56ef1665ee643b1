"""The catalog: which jobs there are, where each of them stands, and who may drive it.

Owns the truth about a job: its latest committed epoch, with the offsets of its sources, changes in one transaction and
only forward. A checkpoint counts once its row is here. Threading: any thread may call; a fork is fine.
Invariants:
- An incarnation is given out once; whoever holds an older one gets FencedError from every call that changes the job.
- A checkpoint id is given out once per name, also when the job is dropped and made again.
- Epoch and offsets that are read together were committed together.
- Every call may be repeated: done twice it has done the same as once (`take` and `next_checkpoint_id` skip a number).
Credentials of the URL are never shown; those inside of a definition, comment or note are stored as `***`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any, Self

from sqlalchemy import Connection, delete, insert, select, update

from iopool import FileSystem, LocalFileSystem
from lsmstate.checkpoint.catalog import schema
from lsmstate.checkpoint.catalog.address import Address
from lsmstate.checkpoint.catalog.reading import checkpoint_row, checkpoint_rows, job_row, job_rows, offsets_of
from lsmstate.checkpoint.catalog.rows import (
    COMMITTED,
    FIRST_LINE,
    INTERVAL_DEFAULT_MS,
    KINDS,
    LEFT_BEHIND,
    CheckpointRow,
    JobKind,
    JobRow,
    Offsets,
    whole,
)
from lsmstate.checkpoint.catalog.session import Session
from lsmstate.checkpoint.catalog.steps import (
    add_checkpoint,
    bump,
    fenced_job,
    is_repeated,
    lock_fence,
    make_fence,
    point,
    require_current,
    require_forward,
    shown,
    unknown,
)
from lsmstate.checkpoint.catalog.tables import CHECKPOINTS, FENCES, JOBS
from lsmstate.checkpoint.catalog.text import (
    checked_name,
    document,
    escaped,
    key_of,
    offsets_document,
    without_credentials,
)
from lsmstate.errors import CatalogError, EpochError


class Catalog:
    """A catalog on SQLite or PostgreSQL. Made by `Catalog.open`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @classmethod
    def open(cls, url: str, *, fs: FileSystem | None = None) -> Catalog:
        """Opens "sqlite:///path" or "postgresql://user:password@host/database"; makes or migrates the schema."""
        files = fs if fs is not None else LocalFileSystem()
        address = Address.parse(files, url)
        if address.is_sqlite:
            address.make_file(files)
        session = Session(files, address)
        try:
            if not session.read(lambda connection: schema.is_present(connection, address.label)):
                session.write(lambda connection: schema.settle(connection, address.label), alone=True)
        except BaseException:
            session.close()
            raise
        return cls(session)

    def __repr__(self) -> str:
        return f"Catalog({self._session.address.label})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets the database go. May be repeated."""
        self._session.close()

    # ---- jobs

    def register(
        self,
        name: str,
        *,
        kind: JobKind,
        definition: Mapping[str, Any],
        comment: str = "",
        checkpoint_interval_ms: int = INTERVAL_DEFAULT_MS,
    ) -> JobRow:
        """The job of this name, made if there is none. Another definition replaces the one before: `changed`."""
        key = key_of(checked_name("the name of a job", name))
        if kind not in KINDS:
            raise ValueError(f"the kind of a job must be one of {', '.join(KINDS)}, not {kind!r:.40}")
        told = {
            "definition": document("the definition of a job", without_credentials(definition)),
            "comment": escaped(without_credentials(comment)),
            "checkpoint_interval_ms": whole("checkpoint_interval_ms", checkpoint_interval_ms, 1),
        }
        new = {"name_key": key, "kind": kind, "latest_checkpoint_epoch": 0, "line": FIRST_LINE, **told}
        new |= {"job_id": uuid.uuid4().hex, "created_ms": time.time_ns() // 1_000_000}

        def work(connection: Connection) -> JobRow:
            make_fence(connection, name)
            lock_fence(connection, key)
            found = connection.execute(select(JOBS).where(JOBS.c.name_key == key)).one_or_none()
            if found is None:
                connection.execute(insert(JOBS).values(**new))
            elif found.kind != kind:
                raise CatalogError(
                    f"job {shown(name)} is of kind {found.kind}, not {kind}; take another name, or drop it first",
                    "other_kind",
                )
            else:
                connection.execute(update(JOBS).where(JOBS.c.job_id == found.job_id).values(**told))
            row = job_row(connection, key, changed=found is not None and found.definition != told["definition"])
            assert row is not None
            return row

        return self._session.write(work)

    def job(self, name: str) -> JobRow | None:
        """The job of this name; None if there is none."""
        return self._session.read(lambda connection: job_row(connection, key_of(name)))

    def jobs(self) -> list[JobRow]:
        """All jobs, by name."""
        return self._session.read(job_rows)

    def drop(self, name: str) -> bool:
        """Forgets a job with all its checkpoints, and fences its drivers; False if there is none. A job that is made
        under this name later has another job_id, and goes on with the incarnations and checkpoint ids."""

        def work(connection: Connection) -> bool:
            lock_fence(connection, key_of(name))
            gone = connection.execute(delete(JOBS).where(JOBS.c.name_key == key_of(name))).rowcount
            if gone:
                bump(connection, name, FENCES.c.incarnation)
            return bool(gone)

        return self._session.write(work)

    # ---- who may

    def take(self, name: str) -> int:
        """A new incarnation, for a driver that starts. All earlier ones are fenced from here on."""

        def work(connection: Connection) -> int:
            if lock_fence(connection, key_of(name)) is None or job_row(connection, key_of(name)) is None:
                raise unknown(name)
            return bump(connection, name, FENCES.c.incarnation)

        return self._session.write(work)

    def check(self, name: str, incarnation: int) -> None:
        """Raises FencedError if another driver has taken the job since, or the job was dropped."""

        def work(connection: Connection) -> None:
            mine = FENCES.c.name_key == key_of(name)
            current = connection.execute(select(FENCES.c.incarnation).where(mine)).scalar_one_or_none()
            if current is None:
                raise unknown(name)
            require_current(name, incarnation, current, job_row(connection, key_of(name)) is not None)

        self._session.read(work)

    def next_checkpoint_id(self, name: str, incarnation: int) -> int:
        """An id for an attempt at a checkpoint, never given out before."""

        def work(connection: Connection) -> int:
            fenced_job(connection, name, incarnation)
            return bump(connection, name, FENCES.c.last_checkpoint_id)

        return self._session.write(work)

    # ---- checkpoints

    def commit_job_checkpoint(self, name: str, incarnation: int, checkpoint: CheckpointRow, offsets: Offsets) -> None:
        """Commits a checkpoint and the offsets of its sources in one transaction: the decision point. Raises EpochError
        if it does not go forward, FencedError if another drives the job. Repeated with the same it changes nothing."""
        if checkpoint.status != COMMITTED:
            raise ValueError(f"a checkpoint is committed with status {COMMITTED!r}, not {checkpoint.status!r}")
        sources = {
            key_of(checked_name("the name of a source", source)): (escaped(source), offsets_document(source, told))
            for source, told in offsets.items()
        }

        def work(connection: Connection) -> None:
            job, last_id = fenced_job(connection, name, incarnation)
            if not is_repeated(connection, job, checkpoint, sources):
                require_forward(job, last_id, checkpoint)
                add_checkpoint(connection, job, checkpoint, sources)

        self._session.write(work)

    def rewind(self, name: str, incarnation: int, epoch: int, line: int) -> None:
        """Steps back to a committed epoch (0: before the first) and begins a new line there. The checkpoints above stay
        in the list as left behind. Repeated with the same it changes nothing."""
        whole("epoch", epoch, 0)
        whole("line", line, FIRST_LINE)

        def work(connection: Connection) -> None:
            job, _ = fenced_job(connection, name, incarnation)
            if (job.line, job.latest_checkpoint_epoch) == (line, epoch):
                return
            if line <= job.line:
                raise EpochError(f"job {shown(name)}: line {line} does not come after line {job.line}, its present one")
            rows = [row for row in checkpoint_rows(connection, job.job_id) if row.status == COMMITTED]
            target = next((row.checkpoint_id for row in rows if row.epoch == epoch), None)
            if target is None and epoch != 0:
                known = ", ".join(str(row.epoch) for row in rows[-20:]) or "none"
                raise EpochError(f"job {shown(name)}: epoch {epoch} is not among its latest committed ones: {known}")
            above = (CHECKPOINTS.c.job_id == job.job_id) & (CHECKPOINTS.c.epoch > epoch)
            connection.execute(update(CHECKPOINTS).where(above).values(status=LEFT_BEHIND))
            point(connection, job, epoch, target, line)

        self._session.write(work)

    def checkpoints(self, name: str) -> list[CheckpointRow]:
        """All checkpoints of a job, by id, those left behind included."""

        def work(connection: Connection) -> list[CheckpointRow]:
            job = job_row(connection, key_of(name))
            if job is None:
                raise unknown(name)
            return checkpoint_rows(connection, job.job_id)

        return self._session.read(work)

    def forget(self, name: str, incarnation: int, ids: Collection[int]) -> None:
        """Removes the rows of checkpoints that were pruned. Unknown ids are fine; the one the job stands at is not."""
        wanted = sorted({whole("a checkpoint id", checkpoint_id, 1) for checkpoint_id in ids})

        def work(connection: Connection) -> None:
            job, _ = fenced_job(connection, name, incarnation)
            if job.latest_checkpoint_id in wanted:
                raise ValueError(f"job {shown(name)} stands at checkpoint {job.latest_checkpoint_id}: it must stay")
            for first in range(0, len(wanted), 500):
                some = CHECKPOINTS.c.checkpoint_id.in_(wanted[first : first + 500])
                connection.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.job_id == job.job_id, some))

        self._session.write(work)

    def source_checkpoints(self, name: str, checkpoint_id: int | None = None) -> dict[str, dict[str, str]]:
        """The offsets by source, at the latest checkpoint or at a given one. Raises EpochError if that is not there."""

        def work(connection: Connection) -> dict[str, dict[str, str]]:
            job = job_row(connection, key_of(name))
            if job is None:
                raise unknown(name)
            if checkpoint_id is None:
                return offsets_of(connection, job.job_id, job.latest_checkpoint_id)
            if checkpoint_row(connection, job.job_id, checkpoint_id) is None:
                raise EpochError(f"job {shown(name)}: there is no checkpoint {checkpoint_id}")
            return offsets_of(connection, job.job_id, checkpoint_id)

        return self._session.read(work)
