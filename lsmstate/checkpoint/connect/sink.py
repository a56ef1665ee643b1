"""What a pipeline asks of a sink: rows become visible by epoch, all of one at once, and each exactly once.

    open -> write ... -> pre_commit(1) -> write ... -> commit(1) -> ... -> close

The first phase makes rows durable and leaves them invisible, the second makes them visible. Between the two stands the
decision of the catalog: so a sink whose second phase did not come is told at `open` up to which epoch it was decided,
and makes good what is missing. A sink may be used from any thread; calls take turns.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Protocol

import pyarrow as pa

from lsmstate.errors import EpochError, SchemaError
from lsmstate.manifest.version import EPOCH_MAX
from lsmstate.schema import columns_difference


class Sink(Protocol):
    """Takes rows in two phases. Opening one fences all that were opened before: they get FencedError."""

    def open(self, name: str, committed_epoch: int | None) -> None:
        """Recovers: what is staged up to `committed_epoch` becomes visible, what is newer is dropped. None, or 0: the
        job has committed nothing yet. `name` is that of the job and the sink: another one cannot share the place."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes rows. A batch that does not fit raises SchemaError before anything is changed."""

    def pre_commit(self, epoch: int) -> dict[str, Any]:
        """All that was written so far is durable, and invisible. Gives small JSON that tells what was staged."""

    def commit(self, epoch: int) -> None:
        """What was staged for the epoch is visible, once; may be repeated."""

    def abort(self, epoch: int) -> None:
        """What was staged for the epoch goes with the next one. An epoch that was not staged is fine."""

    def close(self) -> None:
        """Ends it. What was not pre-committed is dropped."""


def checked_opening(name: object, epoch: object) -> int:
    """The epoch that a sink is opened at, 0 for none. Raises EpochError if it is none, ValueError without a name."""
    if epoch is None:
        epoch = 0
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch <= EPOCH_MAX:
        raise EpochError(f"a sink is opened at an epoch from 0 to {EPOCH_MAX}, or None, not {epoch!r}")
    if not isinstance(name, str) or not name:
        raise ValueError("the name of a sink must be a text of at least one character")
    return epoch


def check_next(where: str, epoch: int, committed: int, staged: Iterable[int]) -> None:
    """Raises EpochError unless an epoch comes after the committed one and all that are staged."""
    last = max(committed, *staged, 0)
    if epoch <= last:
        raise EpochError(f"{where}: epoch {epoch} is not after {last}, the last one; epochs only go forward")


def check_staged(where: str, epoch: int, staged: Container[int]) -> None:
    """Raises EpochError unless an epoch is staged."""
    if epoch not in staged:
        raise EpochError(f"{where}: epoch {epoch} is not pre-committed; call pre_commit({epoch}) first")


def check_fits(where: str, expected: pa.Schema, batch: object) -> None:
    """Raises SchemaError unless a batch has the columns of the first one."""
    if not isinstance(batch, pa.RecordBatch):
        raise SchemaError(f"{where}: a pyarrow RecordBatch is needed, not {type(batch).__name__}")
    if not batch.schema.equals(expected):
        raise SchemaError(
            f"{where}: the batch does not fit what was written before: {columns_difference(expected, batch.schema)}; "
            "write it to another place"
        )
