"""The complete checkpoints of a job that are kept, and the last committed epoch.

Belongs to the coordinator. Invariant: epochs rise, and none is above the last committed one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from lsmstate.checkpoint.coordinator.attempt import Attempt
from lsmstate.checkpoint.coordinator.phases import Completed, Retained


class Kept:
    """epoch: the last committed one. retain: how many are kept; retained: those of earlier runs, oldest first."""

    def __init__(self, epoch: int, retain: int, retained: Iterable[Retained]) -> None:
        for name, value, least in (("retain", retain, 1), ("epoch", epoch, 0)):
            if value < least:
                raise ValueError(f"CheckpointCoordinator: {name} must be at least {least}, not {value!r}")
        kept = deque(retained, maxlen=retain)
        numbers = [each.epoch for each in kept]
        if numbers != sorted(set(numbers)) or any(number > epoch for number in numbers):
            raise ValueError(f"CheckpointCoordinator: retained epochs must rise, up to {epoch}: got {numbers}")
        self.epoch, self._kept = epoch, kept

    def add(self, attempt: Attempt, at_ms: int, size_bytes: int | None) -> Completed:
        """A checkpoint is complete; its size is the sum of its reports unless told. The oldest may go for it."""
        reports = sorted(attempt.snapshots.items())
        size = sum(each.size_bytes for _, each in reports) if size_bytes is None else size_bytes
        positions = {name: dict(each.offsets) for name, each in reports if each.offsets is not None}
        self._kept.append(Retained(attempt.id, attempt.epoch, at_ms, size, positions))
        self.epoch = attempt.epoch
        return Completed(attempt.id, attempt.epoch, at_ms, size)

    @property
    def all(self) -> tuple[Retained, ...]:
        """Oldest first."""
        return tuple(self._kept)

    @property
    def latest(self) -> Retained | None:
        """The newest."""
        return self._kept[-1] if self._kept else None

    @property
    def positions(self) -> Mapping[str, Mapping[str, str]]:
        """Where the sources were at the latest: source -> offsets."""
        return self._kept[-1].positions if self._kept else {}

    @property
    def min_epoch(self) -> int:
        """Epochs below it may be collected: as many as are to be kept are complete from it on."""
        return self._kept[0].epoch if len(self._kept) == self._kept.maxlen else 1
