"""The parts of a simulated job: operators with their source, and sinks. Each can be killed, and is started by drivers.

A part works for one incarnation (`session`), is started once in it, and leaves it only for a newer one: a part that was
killed must not come back in the middle of what the others do. What it has in memory is gone then; candidates, staged
and visible rows, and the incarnation, are durable.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.coordinator.coordinator import OperatorSnapshot

if TYPE_CHECKING:
    from tests.support.sim_checkpoint import World

Row = tuple[int, int]  # its number, and how many rows the state had with it


class Part:
    """What can be killed and started."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.session, self.life = 0, 0
        self.started = 0  # the newest incarnation that it was started in

    def kill(self) -> None:
        """Memory is gone, and what was being written."""
        self.session, self.life = 0, self.life + 1

    def start(self, incarnation: int, epoch: int, checkpoint_id: int) -> None:
        """Goes on from a checkpoint. An older driver is not listened to; one that repeats itself gets its answer."""
        if incarnation > self.started:
            self.session = self.started = incarnation
            self.life += 1
            self.world.note("start", self.name, incarnation, epoch)
            self.restore(epoch, checkpoint_id)
        if incarnation == self.session:
            self.world.to_drivers("started", self.name, incarnation)

    def restore(self, epoch: int, checkpoint_id: int) -> None:
        raise NotImplementedError

    def when_written(self, act: Any, *given: Any) -> None:
        """Does something once a write is durable, unless the part was killed or started anew meanwhile."""
        life = self.life

        def written() -> None:
            if self.life == life:
                act(*given)

        self.world.later(self.world.delay(), written)


class Operator(Part):
    """Reads numbered rows from its source, keeps them all, passes them on."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.candidates: dict[int, tuple[int, tuple[int, ...]]] = {}  # id -> epoch, state
        self.kept: list[int] = []
        self.offset, self.last_barrier = 0, 0
        self.channel: deque[Row | int] = deque()  # rows, and ids of barriers

    def kill(self) -> None:
        super().kill()
        self.kept, self.channel = [], deque()

    def restore(self, epoch: int, checkpoint_id: int) -> None:
        self.channel, self.last_barrier = deque(), 0
        if epoch and checkpoint_id not in self.candidates:
            self.world.fail(f"{self.name} is to go on from checkpoint {checkpoint_id}, which it does not have")
        self.kept = list(self.candidates[checkpoint_id][1]) if epoch else []
        self.offset = self.world.catalog.offsets[epoch][self.name]

    def read(self) -> None:
        """Some rows come."""
        for _ in range(self.world.rng.randint(0, 3)):
            self.offset += 1
            self.kept.append(self.offset)
            self.channel.append((self.offset, len(self.kept)))

    def barrier(self, incarnation: int, barrier: CheckpointBarrier) -> None:
        """The snapshot is taken now, and durable later; then it is reported."""
        number, world = barrier.checkpoint_id, self.world
        if incarnation != self.session or number < self.last_barrier:
            return
        if number == self.last_barrier:
            if number in self.candidates:
                self.report(number)
            return
        self.last_barrier = number
        self.read()
        self.channel.append(number)
        for old in [each for each, (epoch, _) in self.candidates.items() if epoch < barrier.min_epoch]:
            del self.candidates[old]
        if world.rng.random() < 0.5:
            world.to_drivers("aligned", self.name, number)
        self.snapshot(number, barrier.epoch)
        self.read()

    def snapshot(self, number: int, epoch: int) -> None:
        if self.world.chance(self.world.weather.decline):
            self.world.faults["operator declined"] += 1
            self.world.to_drivers("declined", self.name, number)
        elif self.world.chance(self.world.weather.stuck):
            self.world.faults["operator stuck"] += 1
        else:
            self.when_written(self.written, number, epoch, tuple(self.kept))

    def written(self, number: int, epoch: int, state: tuple[int, ...]) -> None:
        self.candidates[number] = (epoch, state)
        self.world.note("durable", self.name, number)
        self.report(number)

    def report(self, number: int) -> None:
        """To the drivers: durable."""
        at = len(self.candidates[number][1])
        snapshot = OperatorSnapshot(self.name, number, b"", size_bytes=at, offsets={"at": str(at)})
        self.world.to_drivers("acknowledged", snapshot)

    def commit(self, incarnation: int, epoch: int, checkpoint_id: int) -> None:
        if incarnation == self.session:
            self.world.to_drivers("committed", self.name, checkpoint_id)

    def abort(self, incarnation: int, checkpoint_id: int) -> None:
        """Candidates have names of their own: nothing to undo."""


class Sink(Part):
    """Takes rows of some operators; makes them visible by epoch."""

    def __init__(self, world: World, name: str, inputs: list[str]) -> None:
        super().__init__(world, name)
        self.inputs = inputs
        self.staged: dict[int, tuple[int, int, dict[str, list[Row]]]] = {}  # id -> epoch, incarnation, rows
        self.visible: dict[str, int] = dict.fromkeys(inputs, 0)  # how many rows; checked one by one
        self.committed = 0
        self.waiting: dict[str, list[Row | int]] = {name: [] for name in inputs}

    def kill(self) -> None:
        super().kill()
        self.waiting = {name: [] for name in self.inputs}

    def restore(self, epoch: int, checkpoint_id: int) -> None:
        """What the catalog has becomes visible; the rest is dropped, but nothing of a newer driver."""
        self.waiting = {name: [] for name in self.inputs}
        if self.committed < epoch and checkpoint_id in self.staged:
            self.show(epoch, checkpoint_id)
        if self.committed < epoch:
            self.world.fail(f"{self.name} is to go on from epoch {epoch}, and has rows up to {self.committed} only")
        self.staged = {number: one for number, one in self.staged.items() if one[1] > self.session}

    def pre_commit(self, incarnation: int, epoch: int, checkpoint_id: int) -> None:
        """All rows before the barrier are made durable, unseen."""
        if incarnation != self.session:
            return
        if checkpoint_id in self.staged:
            self.world.to_drivers("staged", self.name, checkpoint_id)
            return
        rows: dict[str, list[Row]] = {}
        for name in self.inputs:
            operator, waiting = self.world.operators[name], self.waiting[name]
            if operator.session == self.session:
                waiting.extend(operator.channel)
                operator.channel.clear()
            if checkpoint_id not in waiting:
                return  # its operator is gone
            rows[name] = [each for each in waiting[: waiting.index(checkpoint_id)] if isinstance(each, tuple)]
        self.when_written(self.stage, epoch, checkpoint_id, rows)

    def stage(self, epoch: int, checkpoint_id: int, rows: dict[str, list[Row]]) -> None:
        self.staged[checkpoint_id] = (epoch, self.session, rows)
        self.world.to_drivers("staged", self.name, checkpoint_id)

    def commit(self, incarnation: int, epoch: int, checkpoint_id: int) -> None:
        if incarnation != self.session:
            return
        if self.committed < epoch:
            self.show(epoch, checkpoint_id)
            for waiting in self.waiting.values():
                del waiting[: waiting.index(checkpoint_id) + 1]
        self.world.to_drivers("committed", self.name, checkpoint_id)

    def abort(self, incarnation: int, checkpoint_id: int) -> None:
        """Its rows go with the next epoch: they still wait."""
        if incarnation == self.session:
            self.staged.pop(checkpoint_id, None)

    def show(self, epoch: int, checkpoint_id: int) -> None:
        """Makes an epoch visible; checked: exactly the rows up to its offsets, each once."""
        world = self.world
        told, _, rows = self.staged.pop(checkpoint_id)
        if world.catalog.ids.get(epoch) != checkpoint_id or told != epoch or epoch != self.committed + 1:
            world.fail(f"{self.name} shows epoch {epoch} after {self.committed}, which the catalog does not have so")
        for name in self.inputs:
            until = world.catalog.offsets[epoch][name]
            if rows[name] != [(n, n) for n in range(self.visible[name] + 1, until + 1)]:
                world.fail(
                    f"{self.name} shows {rows[name]} of {name}: not {self.visible[name] + 1} to {until}, each once"
                )
            self.visible[name] = until
        self.committed = epoch
        world.note("visible", self.name, epoch)
