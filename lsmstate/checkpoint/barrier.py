"""The barrier that travels with the rows: what comes before it belongs to its epoch, what comes after to the next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """epoch: which one ends here. min_epoch: older ones may be collected. timestamp: when it was sent, in milliseconds.
    then_stop: stop once it is committed. checkpoint_id: the attempt that it belongs to; an epoch whose attempt failed
    is tried again under another one."""

    epoch: int
    min_epoch: int = 1
    timestamp: int = 0
    then_stop: bool = False
    checkpoint_id: int = 0

    def __post_init__(self) -> None:
        for name in ("epoch", "min_epoch"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"CheckpointBarrier.{name} must be a whole number of at least 1, not {value!r}")
        if self.min_epoch > self.epoch:
            raise ValueError(f"CheckpointBarrier: min_epoch {self.min_epoch} is above epoch {self.epoch}")
