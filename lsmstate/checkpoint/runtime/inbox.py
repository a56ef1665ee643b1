"""The inbox of a task: one bounded queue for each of its inputs, and one for what the master commands.

A producer that finds its queue full waits (**back-pressure**); only rows count, so that barriers, watermarks and ends
always get through. The task takes from all queues that it has not blocked, in turns, so that no input starves.

Threading: each input has one producer, the inbox one consumer; the master commands from a thread of its own. Whatever
waits ends when the inbox is closed, by InboxClosed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

import pyarrow as pa

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.errors import LsmStateError

CAPACITY = 16  # batches in a queue


class InboxClosed(LsmStateError):
    """The job stops: nothing more is taken or given."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of rows."""

    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Mark:
    """No more rows up to this time, in microseconds."""

    watermark: int


@dataclass(frozen=True, slots=True)
class End:
    """Nothing more will come on this input."""


@dataclass(frozen=True, slots=True)
class Start:
    """A checkpoint for a task whose inputs all end before its barrier could come."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class PreCommit:
    """All operators have made their part of a checkpoint durable: sinks follow."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """An epoch counts."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Abort:
    """An attempt is over: what was prepared of its epoch goes into the next one."""

    epoch: int
    checkpoint_id: int


Item: TypeAlias = Rows | Mark | CheckpointBarrier | End
Command: TypeAlias = Start | PreCommit | Commit | Abort


class Inbox:
    """The queues of one task."""

    def __init__(self, inputs: Sequence[str], capacity: int = CAPACITY) -> None:
        self.inputs = tuple(inputs)
        self._capacity = capacity
        self._queues: list[deque[Item]] = [deque() for _ in inputs]
        self._rows = [0] * len(inputs)
        self._commands: deque[Command] = deque()
        self._turn = 0
        self.announced: tuple[CheckpointBarrier, float] | None = None  # the newest barrier in any queue, and since when
        self._closed = False
        self._changed = threading.Condition()

    # ---- for producers and the master

    def wait_for_room(self, number: int) -> None:
        """Waits until an input can take rows. Its only producer then finds room, whoever else is served meanwhile."""
        with self._changed:
            while self._rows[number] >= self._capacity and not self._closed:
                self._changed.wait()
            self._check_open()

    def put(self, number: int, item: Item) -> None:
        """Adds to an input; never waits."""
        with self._changed:
            self._check_open()
            self._queues[number].append(item)
            self._rows[number] += isinstance(item, Rows)
            if isinstance(item, CheckpointBarrier) and (
                self.announced is None or item.checkpoint_id > self.announced[0].checkpoint_id
            ):
                self.announced = item, monotonic()
            self._changed.notify_all()

    def command(self, command: Command) -> None:
        """Adds a command, which is taken before any row."""
        with self._changed:
            if not self._closed:
                self._commands.append(command)
                self._changed.notify_all()

    def close(self) -> None:
        """Ends all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # ---- for the task

    def take(self, blocked: Collection[int] = (), deadline: float | None = None) -> Command | tuple[int, Item] | None:
        """The next command, or the next of an input that is not blocked; None at the deadline (monotonic seconds)."""
        with self._changed:
            while True:
                self._check_open()
                if self._commands:
                    return self._commands.popleft()
                for step in range(len(self._queues)):
                    number = (self._turn + step) % len(self._queues)
                    if number not in blocked and self._queues[number]:
                        self._turn = number + 1
                        return number, self._popped(number)
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)

    def overtake(self, number: int, checkpoint_id: int) -> list[Item] | None:
        """Takes the barrier of a checkpoint out of an input, past all that lies before it, and tells what that is; it
        stays to be taken. None if the barrier has not come."""
        with self._changed:
            queue = self._queues[number]
            for place, item in enumerate(queue):
                if isinstance(item, CheckpointBarrier) and item.checkpoint_id == checkpoint_id:
                    del queue[place]
                    return list(queue)[:place]
            return None

    def _popped(self, number: int) -> Item:
        item = self._queues[number].popleft()
        if isinstance(item, Rows):
            self._rows[number] -= 1
            self._changed.notify_all()
        return item

    def _check_open(self) -> None:
        if self._closed:
            raise InboxClosed("the job has stopped")
