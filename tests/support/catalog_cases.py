"""What the catalog's tests do again and again: a job with a checkpoint, one more, and what a refusal must look like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lsmstate import CatalogError
from lsmstate.checkpoint.catalog import Catalog, CheckpointRow, session

ORDERS = {"orders": {"0": "5", "1": "7"}, "payments": {"file": "a/b.parquet", "row": "12"}}


def commit(catalog: Catalog, incarnation: int, epoch: int, name: str = "job", line: int = 1) -> CheckpointRow:
    """Commits an epoch with offsets that tell it."""
    row = CheckpointRow(catalog.next_checkpoint_id(name, incarnation), epoch, line)
    catalog.commit_job_checkpoint(name, incarnation, row, {"orders": {"0": str(epoch)}})
    return row


def start_job(catalog: Catalog) -> int:
    """A job with its first checkpoint; the incarnation."""
    catalog.register("job", kind="pipeline", definition={})
    mine = catalog.take("job")
    commit(catalog, mine, 1)
    return mine


def latest(catalog: Catalog) -> int:
    """The latest epoch of that job."""
    told = catalog.job("job")
    assert told is not None
    return told.latest_checkpoint_epoch


@contextmanager
def refused(reason: str, text: str, *, soon: bool = False) -> Iterator[None]:
    """Inside, a CatalogError is raised; it shows nothing of the driver's own errors. `soon`: waits end early, where the
    test is about what comes after."""
    with pytest.MonkeyPatch.context() as patched:
        if soon:
            patched.setattr(session, "_POSTGRES_BEGIN", session._POSTGRES_BEGIN.replace(str(session.WAIT_MS), "200"))
            patched.setattr(session, "WAIT_MS", 200)
            patched.setattr(session, "_ANSWER_S", 0.5)
        with pytest.raises(CatalogError, match=text) as error:
            yield
    assert error.value.reason == reason
    assert error.value.__cause__ is None
    assert error.value.__context__ is None
    assert "sqlalchemy" not in str(error.value).lower()
