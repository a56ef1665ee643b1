"""The task of an operator: a thread that takes rows, watermarks and barriers from its inbox, one after the other.

Order at a barrier: aligned on all inputs -> the operator's hook -> its state is made durable -> the barrier is sent
on -> the master is told. What cannot be made durable is declined: the attempt is over for all, the job goes on. Any
other error ends the job.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Protocol

import pyarrow as pa

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.context import OperatorContext
from lsmstate.checkpoint.coordinator.coordinator import OperatorSnapshot
from lsmstate.checkpoint.coordinator.events import EventKind
from lsmstate.checkpoint.manifest.operator_state import LsmState, OperatorState
from lsmstate.checkpoint.operator import Operator
from lsmstate.checkpoint.runtime import inbox as box
from lsmstate.checkpoint.runtime.aligner import Aligner
from lsmstate.checkpoint.runtime.flight import pack, unpack
from lsmstate.checkpoint.runtime.outputs import Outputs
from lsmstate.errors import LsmStateError
from lsmstate.keys import TS_MAX

STATE = "state"  # in the directory of an instance: the store of its operator


class Master(Protocol):
    """Whom a task tells what it has done. Called from the task's thread; never waits."""

    def acknowledge(self, snapshot: OperatorSnapshot) -> None:
        """The task has made its part of a checkpoint durable."""

    def staged(self, task: str, checkpoint_id: int, told: bytes) -> None:
        """A sink has pre-committed."""

    def decline(self, task: str, checkpoint_id: int, error: Exception) -> None:
        """It could not."""

    def committed(self, task: str, epoch: int, error: Exception | None) -> None:
        """It has committed an epoch, or could not."""

    def failed(self, task: str, error: BaseException) -> None:
        """It has ended by an error."""

    def drained(self, task: str) -> None:
        """All of its inputs have ended."""

    def note(self, kind: EventKind, barrier: CheckpointBarrier, task: str) -> None:
        """Something of a checkpoint has begun or ended."""


class OperatorTask:
    """One instance of an operator at work.

    inputs: for each queue of the inbox which input of the operator it belongs to. directory: its own, in the job's.
    align_s: after how long a checkpoint
    goes on unaligned; never if None. replay: records in flight by queue, processed before anything new.
    """

    def __init__(
        self,
        name: str,
        operator: Operator,
        inbox: box.Inbox,
        inputs: Sequence[int],
        outputs: Outputs,
        master: Master,
        context: OperatorContext,
        directory: str,
        align_s: float | None = None,
        replay: Mapping[int, Sequence[bytes]] | None = None,
    ) -> None:
        self.name, self.operator, self.inbox = name, operator, inbox
        self._inputs, self._outputs, self._master, self._context = tuple(inputs), outputs, master, context
        self._directory = directory
        self._aligner = Aligner(inbox.inputs)
        self._align_s = align_s
        self._replay = dict(replay or {})
        self._inflight: dict[str, list[bytes]] = {}
        self._marks: list[int | None] = [None] * len(inputs)
        self._told: list[int | None] = [None] * (max(inputs, default=-1) + 1)
        self._sent_mark: int | None = None
        self._prepared: int | None = None
        self._offsets: Mapping[str, Mapping[str, str]] = dict(context.table_offsets)  # as of what is durable
        self.thread = threading.Thread(target=self._run, name=f"lsmstate-{name}", daemon=True)

    def start(self) -> None:
        """Begins to work. The operator is started already."""
        self.thread.start()

    def close(self) -> None:
        """Closes the operator and its tables. Requires: the thread has ended."""
        try:
            self.operator.on_close()
        finally:
            if self._context.tables is not None:
                self._context.tables.close()

    def join(self, timeout: float) -> bool:
        """Waits for the thread; True if it has ended."""
        if self.thread.ident is not None:
            self.thread.join(timeout)
        return not self.thread.is_alive()

    def _run(self) -> None:
        try:
            replay, self._replay = self._replay, {}
            for number, packed in replay.items():
                for item in unpack(f"the records in flight of {self.name}", packed):
                    self._handle(number, item)
            while True:
                ends = self._alignment_ends()
                late = ends is not None and monotonic() >= ends
                taken = None if late else self.inbox.take(self._aligner.blocked, ends)
                if taken is None:
                    self._aligner.give_up()
                elif isinstance(taken, tuple):
                    self._handle(*taken)
                else:
                    self._obey(taken)
                self._overtake()
                if self._aligner.is_complete():
                    self._snapshot()
        except box.InboxClosed:
            pass  # the job stops
        except BaseException as error:
            self._master.failed(self.name, error)

    # ---- rows, watermarks, ends

    def _handle(self, number: int, item: box.Item) -> None:
        if isinstance(item, box.Rows):
            self._emit(self.operator.process_batch(self._inputs[number], item.batch))
        elif isinstance(item, box.Mark):
            self._marks[number] = item.watermark
            self._advance(self._inputs[number])
        elif isinstance(item, box.End):
            self._aligner.end(number)
            self._marks[number] = TS_MAX
            self._advance(self._inputs[number])
            if self._aligner.has_ended:
                self._outputs.broadcast(item)
                self._master.drained(self.name)
        else:
            self._deliver(number, item)

    def _emit(self, results: Iterator[pa.RecordBatch]) -> None:
        for batch in results:
            self._outputs.emit(batch)

    def _advance(self, side: int) -> None:
        """Tells the operator the watermark of one of its inputs: the lowest of all queues that make it up."""
        marks = [mark for mark, number in zip(self._marks, self._inputs, strict=True) if number == side]
        known = [mark for mark in marks if mark is not None]
        if len(known) < len(marks) or self._told[side] == min(known):
            return
        self._told[side] = min(known)
        self._emit(self.operator.process_watermark(min(known), side))
        out = self.operator.output_watermark
        if out is not None and out != self._sent_mark:
            self._sent_mark = out
            self._outputs.broadcast(box.Mark(out))

    # ---- checkpoints

    def _deliver(self, number: int, barrier: CheckpointBarrier) -> None:
        before = self._aligner.barrier
        if self._aligner.deliver(number, barrier) and self._aligner.barrier != before:
            self._master.note("alignment_started", barrier, self.name)

    def _alignment_ends(self) -> float | None:
        """When to go on unaligned, counted from when a barrier has come into any queue."""
        announced = self.inbox.announced
        if self._align_s is None or announced is None or self._aligner.is_unaligned:
            return None
        barrier, since = announced
        return None if self._aligner.is_over(barrier.checkpoint_id) else since + self._align_s

    def _overtake(self) -> None:
        """Takes barriers past the rows before them, once alignment has been given up."""
        announced = self.inbox.announced
        if not self._aligner.is_unaligned or announced is None:
            return
        barrier = announced[0]
        for number in self._aligner.missing:
            passed = self.inbox.overtake(number, barrier.checkpoint_id)
            if passed is not None:
                self._deliver(number, barrier)
                self._inflight[self.inbox.inputs[number]] = pack(passed)

    def _snapshot(self) -> None:
        barrier, inflight = self._aligner.barrier, self._inflight
        assert barrier is not None
        self._inflight = {}
        self._master.note("checkpointing_started", barrier, self.name)
        try:
            states = self._persist(barrier)
        except (OSError, LsmStateError) as error:
            self._aligner.finish()
            self._master.decline(self.name, barrier.checkpoint_id, error)
            return
        if not self._aligner.has_ended:
            self._outputs.broadcast(barrier)
        self._aligner.finish()
        self._master.acknowledge(
            OperatorSnapshot(
                self.name,
                barrier.checkpoint_id,
                states,
                inflight=inflight,
                size_bytes=sum(len(s) if isinstance(s, bytes) else s.size_bytes for s in states.values()),
                watermark=self.operator.output_watermark,
                tables={f"{self.name}:{table}": at for table, at in self._offsets.items()},
            )
        )

    def _persist(self, barrier: CheckpointBarrier) -> dict[str, OperatorState | bytes]:
        """The hook, then the tables; what both have made durable, by name."""
        persists = self.operator.handle_checkpoint(barrier)
        self._prepared = barrier.epoch
        own = self.operator.state()
        states: dict[str, OperatorState | bytes] = {} if own is None else {self.name: self._placed(own)}
        tables = self._context.tables
        if persists and tables is not None:
            tables.prepare(barrier.epoch)
        if persists:
            self._offsets = self.operator.table_offsets()
        if tables is not None:
            states |= {f"{self.name}:{table}": state for table, state in tables.states(self._directory).items()}
        return states

    def _placed(self, state: OperatorState | bytes) -> OperatorState | bytes:
        """The state with the place of its directory in the job's."""
        if isinstance(state, bytes) or state.lsm is None:
            return state
        return OperatorState(lsm=LsmState(state.lsm.candidate, f"{self._directory}/{STATE}", state.lsm.files))

    def _obey(self, command: box.Command) -> None:
        if isinstance(command, box.Commit):
            self._commit(command.epoch)
        elif isinstance(command, box.Abort):
            self._aligner.cancel(command.checkpoint_id)
            self._inflight = {}
            if self._prepared == command.epoch:
                self._prepared = None
                self.operator.abort(command.epoch)
                if self._context.tables is not None:
                    self._context.tables.abort(command.epoch)
        elif isinstance(command, box.Start) and self._aligner.start(command.barrier):
            self._master.note("alignment_started", command.barrier, self.name)

    def _commit(self, epoch: int) -> None:
        try:
            self.operator.commit(epoch)
            if self._context.tables is not None:
                self._context.tables.commit(epoch)
        except Exception as error:  # the epoch counts all the same: recovery commits it
            self._master.committed(self.name, epoch, error)
            return
        self._prepared = None
        self._master.committed(self.name, epoch, None)
