"""The task of a sink: an operator without results, whose snapshot has two phases.

When the barrier has come on all inputs the task says so and takes nothing more. Only when all operators have made their
part durable does the master ask it to pre-commit; then the inputs are free again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from lsmstate.checkpoint.connect.sink import Sink
from lsmstate.checkpoint.coordinator.coordinator import OperatorSnapshot
from lsmstate.checkpoint.operator import Operator
from lsmstate.checkpoint.runtime import inbox as box
from lsmstate.checkpoint.runtime.operator_task import OperatorTask


class SinkOperator(Operator):
    """A sink as the last operator."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        """Writes rows."""
        self.sink.write(batch)
        return iter(())

    def commit(self, epoch: int) -> None:
        """Makes an epoch visible."""
        self.sink.commit(epoch)

    def abort(self, epoch: int) -> None:
        """What was staged goes with the next epoch."""
        self.sink.abort(epoch)

    def on_close(self) -> None:
        """Ends the sink."""
        self.sink.close()


class SinkTask(OperatorTask):
    """One sink at work."""

    _has_told: int | None = None  # the attempt whose barrier has come on all inputs

    def _snapshot(self) -> None:
        barrier = self._aligner.barrier
        assert barrier is not None
        if self._has_told == barrier.checkpoint_id:
            return
        self._has_told = barrier.checkpoint_id
        inflight, self._inflight = self._inflight, {}
        self._master.note("checkpointing_started", barrier, self.name)
        self._master.acknowledge(OperatorSnapshot(self.name, barrier.checkpoint_id, inflight=inflight))

    def _obey(self, command: box.Command) -> None:
        if isinstance(command, box.PreCommit):
            self._pre_commit(command)
        else:
            super()._obey(command)

    def _pre_commit(self, command: box.PreCommit) -> None:
        barrier = self._aligner.barrier
        if barrier is None or barrier.checkpoint_id != command.checkpoint_id:
            return  # the attempt is over
        self._aligner.finish()
        assert isinstance(self.operator, SinkOperator)
        try:
            staged = self.operator.sink.pre_commit(barrier.epoch)
        except Exception as error:  # of whatever the sink writes to: the attempt is over, the job goes on
            self._master.decline(self.name, barrier.checkpoint_id, error)
            return
        self._prepared = barrier.epoch
        self._master.staged(self.name, barrier.checkpoint_id, json.dumps(staged).encode())
