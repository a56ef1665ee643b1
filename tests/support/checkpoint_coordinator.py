"""A coordinator on clocks that are moved by hand, led to where a test wants it."""

from __future__ import annotations

from typing import Any

from lsmstate.checkpoint.coordinator.coordinator import CheckpointCoordinator, OperatorSnapshot
from lsmstate.checkpoint.coordinator.phases import Completed


class Time:
    """A clock of each kind, moved by hand."""

    def __init__(self) -> None:
        self.now, self.wall_ms = 100.0, 1_000_000

    def go(self, seconds: float) -> None:
        self.now += seconds
        self.wall_ms += int(seconds * 1000)


def make(time: Time, *operators: str, **options: Any) -> CheckpointCoordinator:
    coordinator = CheckpointCoordinator(clock=lambda: time.now, now_ms=lambda: time.wall_ms, **options)
    for operator in operators:
        coordinator.register(operator)
    return coordinator


def ack(operator: str, checkpoint_id: int, **given: Any) -> OperatorSnapshot:
    return OperatorSnapshot(operator, checkpoint_id, **given)


def complete(coordinator: CheckpointCoordinator, **options: Any) -> Completed:
    """One whole checkpoint."""
    barrier = coordinator.initiate(**options)
    for operator in coordinator.operators:
        coordinator.acknowledge(ack(operator, barrier.checkpoint_id, offsets={"at": str(barrier.epoch)}, size_bytes=5))
    for step in ("pre_commit", "persist", "commit"):
        coordinator.begin(step)
    return coordinator.done()


def at_step(coordinator: CheckpointCoordinator, step: str) -> None:
    """Leads a coordinator of "a" and "b" to a step."""
    coordinator.initiate()
    if step == "align":
        return
    for operator in ("a", "b"):
        coordinator.progress("checkpointing_started", operator, 1)
    if step == "snapshot":
        return
    for operator in ("a", "b"):
        coordinator.acknowledge(ack(operator, 1))
    for each in ("pre_commit", "persist", "commit"):
        coordinator.begin(each)
        if each == step:
            return
