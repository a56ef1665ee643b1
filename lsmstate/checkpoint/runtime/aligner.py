"""Alignment: an operator's snapshot is taken when the barrier of a checkpoint has come on all of its inputs.

An input that has delivered it is blocked until the rest has; an input that ended counts as aligned; one input passes at
once. Where alignment takes too long it may be given up (**unaligned**): then the snapshot is taken at once, and the
records that still lie before the barrier in other inputs belong to it as well, as records in flight.

Pure: no threads, no clock. Belongs to the thread of its operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.errors import CheckpointError


class Aligner:
    """The barriers of one operator's inputs, told by their numbers."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self._names = tuple(inputs)
        self._delivered: set[int] = set()
        self._ended: set[int] = set()
        self._cancelled = 0  # attempts up to this one are over
        self.barrier: CheckpointBarrier | None = None
        self.is_unaligned = False

    @property
    def blocked(self) -> frozenset[int]:
        """The inputs that may not be read now."""
        return frozenset(self._delivered)

    @property
    def missing(self) -> list[int]:
        """The inputs whose barrier is still to come, if one comes."""
        return [n for n in range(len(self._names)) if n not in self._delivered and n not in self._ended]

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come on any input."""
        return len(self._ended) == len(self._names)

    def deliver(self, number: int, barrier: CheckpointBarrier) -> bool:
        """An input has delivered a barrier. True if it counts: the first of its attempt, or one more of it.

        The barrier of a later attempt takes the place of one that was given up. Raises CheckpointError where an input
        that is blocked, or has ended, delivers one.
        """
        name = self._names[number]
        if number in self._ended:
            raise CheckpointError(f"input {name!r} has ended, and delivers the barrier of epoch {barrier.epoch}")
        if barrier.checkpoint_id <= self._cancelled:
            return False
        if self.barrier is not None and barrier.checkpoint_id < self.barrier.checkpoint_id:
            return False
        if number in self._delivered:
            raise CheckpointError(
                f"input {name!r} is blocked by the barrier of epoch {self.barrier and self.barrier.epoch}, and "
                f"delivers that of epoch {barrier.epoch}: each barrier comes once on each input"
            )
        if self.barrier is not None and barrier.checkpoint_id > self.barrier.checkpoint_id:
            self._forget()
        self.barrier = barrier
        self._delivered.add(number)
        return True

    def start(self, barrier: CheckpointBarrier) -> bool:
        """A barrier that comes on no input, because all of them end before it. True if it counts."""
        if barrier.checkpoint_id <= self._cancelled:
            return False
        self._forget()
        self.barrier = barrier
        return True

    def end(self, number: int) -> None:
        """Nothing more will come on an input."""
        self._ended.add(number)

    def is_over(self, checkpoint_id: int) -> bool:
        """Whether an attempt has come to its end here: its snapshot was taken, or it was given up by all."""
        return checkpoint_id <= self._cancelled

    def is_complete(self) -> bool:
        """Whether the snapshot of the checkpoint that is under way can be taken."""
        return self.barrier is not None and not self.missing

    def give_up(self) -> None:
        """Goes on unaligned: barriers overtake what lies before them."""
        self.is_unaligned = True

    def finish(self) -> None:
        """The snapshot is taken: all inputs may be read again."""
        if self.barrier is not None:
            self._cancelled = max(self._cancelled, self.barrier.checkpoint_id)
        self._forget()

    def cancel(self, checkpoint_id: int) -> bool:
        """An attempt is over: its barriers mean nothing any more. True if it was under way here."""
        self._cancelled = max(self._cancelled, checkpoint_id)
        if self.barrier is None or self.barrier.checkpoint_id > checkpoint_id:
            return False
        self._forget()
        return True

    def _forget(self) -> None:
        self.barrier = None
        self._delivered.clear()
        self.is_unaligned = False
