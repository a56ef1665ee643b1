"""What a pipeline asks of an operator. The joins of `lsmstate.join` are such operators; yours can be.

    on_start -> process_batch, process_watermark ... -> handle_checkpoint -> commit or abort -> ... -> on_close

An operator belongs to the thread of its task. Results are iterators, taken to their end before the next call. State
lies in the tables of its context (`context.tables`), which the runtime makes durable after the hook; in a store of
its own, which the hook makes durable by itself and tells of by `state`; or, where it is small, in bytes that `state`
gives and `context.saved` gives back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.context import OperatorContext
from lsmstate.checkpoint.manifest.operator_state import OperatorState
from lsmstate.errors import CheckpointError
from lsmstate.keys import I64


class Operator:
    """An operator that does nothing; give it what yours does."""

    def definition(self) -> dict[str, object]:
        """What it is, as JSON: a change of it is reported on recovery."""
        return {"operator": type(self).__name__}

    def on_start(self, context: OperatorContext) -> None:
        """Opens its state at the context's safe epoch."""

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        """Takes rows of an input; gives results."""
        return iter(())

    def process_watermark(self, watermark: int, number: int, /) -> Iterator[pa.RecordBatch]:
        """No more rows of an input up to this time (us) will come; gives what is decided by it."""
        return iter(())

    @property
    def output_watermark(self) -> int | None:
        """How far its results have come: none that follows has a time up to it. None if that is not known."""
        return None

    def handle_checkpoint(self, barrier: CheckpointBarrier) -> bool:
        """The hook, when the barrier has come on all inputs. False: its tables are not made durable this time."""
        return True

    def state(self) -> OperatorState | bytes | None:
        """What the hook has made durable by itself; or bytes, which the checkpoint's manifest keeps."""
        return None

    def table_offsets(self) -> dict[str, dict[str, str]]:
        """Up to where the reference tables that it reads have been read, as of the hook."""
        return {}

    def commit(self, epoch: int) -> None:
        """All operators have made the epoch durable: it counts."""

    def abort(self, epoch: int) -> None:
        """Another operator could not: what was prepared goes into the next epoch."""

    def on_close(self) -> None:
        """Closes its state. What was not committed is not kept."""

    def route(self, number: int, batch: pa.RecordBatch, parallelism: int, /) -> I64:
        """For each row of an input which of several instances of this operator gets it: by key, or all the first."""
        return np.zeros(batch.num_rows, np.int64)

    def rescale(self, before: Sequence[tuple[str, OperatorState]], after: Sequence[str], epoch: int) -> None:
        """Makes the state of some instances (directories, and what the checkpoint tells of them) that of others."""
        raise CheckpointError(
            f"{type(self).__name__} cannot change its parallelism from {len(before)} to {len(after)}; "
            "go on with the one that it had"
        )
