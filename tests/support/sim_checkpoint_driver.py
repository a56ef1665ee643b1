"""A driver of a simulated job: takes it from the catalog, recovers it, and runs the real coordinator until fenced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lsmstate.checkpoint.coordinator.coordinator import CheckpointCoordinator, OperatorSnapshot, PhaseTimeouts
from lsmstate.checkpoint.coordinator.phases import Failed, InProgress, Retained
from lsmstate.errors import CatalogError, CheckpointError, FencedError
from tests.support.sim_checkpoint_stores import Manifest

if TYPE_CHECKING:
    from tests.support.sim_checkpoint import World

TICK_S, START_S = 0.5, 5.0
RETAIN = 3
TIMEOUTS = PhaseTimeouts(align_s=3, snapshot_s=3, pre_commit_s=3, persist_s=4, commit_s=4)


class Driver:
    """One process. Every step is an event of its own, so that others come between."""

    def __init__(self, world: World) -> None:
        self.world, self.is_alive, self.paused_until = world, True, 0.0
        self.turn, self.incarnation = 0, 0  # how often it has taken the job, and as which one
        self.coordinator: CheckpointCoordinator | None = None
        self.take()
        self.tick()

    def die(self, why: str) -> None:
        """For good."""
        self.world.note("driver ends", why)
        self.world.seen[f"driver ended: {why}"] += 1
        self.is_alive = False

    def soon(self, seconds: float, act: Callable[..., None], *given: Any) -> None:
        """A later step of this turn: not done if the driver has died, or has taken the job anew."""
        self.world.later(seconds, self._do, self.turn, act, given)

    def _do(self, turn: int, act: Callable[..., None], given: tuple[Any, ...]) -> None:
        if not self.is_alive or turn != self.turn:
            return
        if self.paused_until > self.world.now and not self.world.is_calm:
            self.world.at(self.paused_until, self._do, turn, act, given)
            return
        try:
            act(*given)
        except FencedError:
            self.die("fenced")

    # -- recovery

    def take(self) -> None:
        """From the beginning: a new incarnation. Who was fenced meanwhile does not take the job back."""
        self.turn += 1
        self.coordinator, self.missing = None, set(self.world.parts)
        self.at: tuple[int, int] | None = None  # the epoch and checkpoint id to start from
        self.soon(self.world.rng.uniform(0.01, 0.3), self._take)

    def _take(self) -> None:
        try:
            if self.incarnation:
                self.world.catalog.check(self.incarnation)
            self.incarnation = self.world.catalog.take()
        except CatalogError:
            self.soon(0.5, self._take)
            return
        self.soon(self.world.rng.uniform(0.01, 0.3), self._recover)

    def _recover(self) -> None:
        world = self.world
        try:
            job = world.catalog.job()
            newer = [each for each in world.manifests.saved.values() if each.epoch > job.latest_checkpoint_epoch]
            forward = [each for each in newer if self.counts(each)]
            if forward:
                world.note("rolls forward", forward[0].id)
                world.seen["rolled forward"] += 1
                world.catalog.commit(self.incarnation, forward[0])
                job = world.catalog.job()
            rows = world.catalog.checkpoints()[-RETAIN:]
        except CatalogError:
            self.soon(0.5, self._recover)
            return
        for orphan in newer:
            if orphan.incarnation < self.incarnation and orphan not in forward:
                del world.manifests.saved[orphan.id]
                world.seen["orphan removed"] += 1
        if job.latest_checkpoint_id is not None and job.latest_checkpoint_id not in world.manifests.saved:
            world.fail(f"the catalog names manifest {job.latest_checkpoint_id}, which is gone")
        self.at = (job.latest_checkpoint_epoch, job.latest_checkpoint_id or 0)
        self._retained = [Retained(each.checkpoint_id, each.epoch, each.timestamp_ms, 0) for each in rows]
        self._start_until = world.now + START_S
        self._start_parts()

    def counts(self, manifest: Manifest) -> bool:
        """Whether a manifest that the catalog does not have is rolled forward: that of the driver before, only."""
        return manifest.incarnation == self.incarnation - 1

    def _start_parts(self) -> None:
        assert self.at is not None
        for name in sorted(self.missing):
            self.world.send(self.world.parts[name].start, self.incarnation, *self.at)

    def started(self, name: str, incarnation: int) -> None:
        """A part has restored what it had; when all have, checkpoints begin."""
        if incarnation != self.incarnation or self.at is None or self.coordinator is not None:
            return
        self.missing.discard(name)
        if self.missing:
            return
        self.coordinator = self.make_coordinator()
        for operator in self.world.operators:
            self.coordinator.register(operator)

    def make_coordinator(self) -> CheckpointCoordinator:
        assert self.at is not None
        return self.world.design.coordinator(
            next_id=lambda: self.world.catalog.next_id(self.incarnation),
            epoch=self.at[0],
            interval_s=1.5,
            timeouts=TIMEOUTS,
            retain=RETAIN,
            retained=self._retained,
            failures_max=3,
            backoff_s=0.5,
            clock=lambda: self.world.now,
            now_ms=self.world.wall_ms,
        )

    # -- checkpoints

    def tick(self) -> None:
        """Twice a second: the clock, and what may have been lost is sent again."""
        if not self.is_alive:
            return
        self.world.later(TICK_S, self.tick)
        if self.paused_until > self.world.now and not self.world.is_calm:
            return
        try:
            if self.coordinator is not None:
                self._tick(self.coordinator)
            elif self.at is not None:
                self.world.catalog.check(self.incarnation)
                if self.world.now > self._start_until:
                    self.take()  # a part that died while it was started is started again in a new incarnation
                else:
                    self._start_parts()
        except FencedError:
            self.die("fenced")
        except CatalogError:
            pass
        except CheckpointError:  # too many failures, or one that only a recovery settles
            self.take()

    def _tick(self, coordinator: CheckpointCoordinator) -> None:
        failed = coordinator.tick()
        if failed is not None:
            self.failed(failed)
        elif coordinator.should_checkpoint():
            barrier = coordinator.initiate(then_stop=self.world.stop_wanted)
            self.world.catalog.begun(barrier.checkpoint_id)
            self.world.note("barrier", barrier.checkpoint_id, barrier.epoch, barrier.min_epoch)
            self.waiting: set[str] = set()
            self.manifest: Manifest | None = None
            for operator in self.world.operators.values():
                self.world.send(operator.barrier, self.incarnation, barrier)
            stray = OperatorSnapshot("stray", barrier.checkpoint_id, offsets={"at": "0"})
            self.world.to_drivers("acknowledged", stray)  # of an operator that was taken out, and does not know
        elif isinstance(phase := coordinator.phase, InProgress) and coordinator.is_synced:
            self._send_step(phase)

    def _send_step(self, phase: InProgress) -> None:
        """Asks those who have not answered yet."""
        world = self.world
        if phase.step == "pre_commit":
            for name in sorted(self.waiting):
                world.send(world.sinks[name].pre_commit, self.incarnation, phase.epoch, phase.id)
        elif phase.step == "persist" and self.manifest is not None:
            self.decide(self.manifest)
        elif phase.step == "commit":
            for name in sorted(self.waiting):
                world.send(world.parts[name].commit, self.incarnation, phase.epoch, phase.id)

    def failed(self, failed: Failed) -> None:
        """Undone, or recovered where it may not be undone."""
        self.world.note("failed", failed.id, failed.step)
        self.world.seen[f"failed at {failed.step}"] += 1
        if failed.must_recover:
            self.take()
            return
        for part in self.world.parts.values():
            self.world.send(part.abort, self.incarnation, failed.id)

    def deliver(self, report: str, given: tuple[Any, ...]) -> None:
        """A message has come."""
        self._do(self.turn, self._report, (report, given))

    def _report(self, report: str, given: tuple[Any, ...]) -> None:
        if report == "started":
            self.started(*given)
        elif self.coordinator is not None:
            try:
                getattr(self, report)(self.coordinator, *given)
            except CheckpointError:
                self.world.seen["report refused"] += 1

    def acknowledged(self, coordinator: CheckpointCoordinator, snapshot: OperatorSnapshot) -> None:
        if coordinator.acknowledge(snapshot):
            coordinator.begin("pre_commit")
            self._next("pre_commit", set(self.world.sinks))

    def aligned(self, coordinator: CheckpointCoordinator, name: str, number: int) -> None:
        coordinator.progress("checkpointing_started", name, number)

    def declined(self, coordinator: CheckpointCoordinator, name: str, number: int) -> None:
        self.failed(coordinator.decline(name, number, "disk full"))

    def _next(self, step: str, waiting: set[str]) -> None:
        assert self.coordinator is not None
        phase = self.coordinator.phase
        assert isinstance(phase, InProgress)
        assert phase.step == step
        self.waiting = waiting
        self._send_step(phase)

    def staged(self, coordinator: CheckpointCoordinator, name: str, number: int) -> None:
        """A sink has made its rows durable; after the last one the manifest is written."""
        phase = coordinator.phase
        if not isinstance(phase, InProgress) or phase.id != number or phase.step != "pre_commit":
            return
        self.waiting.discard(name)
        if self.waiting:
            return
        coordinator.begin("persist")
        offsets = {name: dict(each.offsets or {}) for name, each in coordinator.snapshots.items()}
        manifest = Manifest(number, phase.epoch, self.incarnation, offsets, phase.started_ms, phase.then_stop)
        turn = self.turn
        self.world.write_manifest(manifest, lambda ok: self._do(turn, self._saved, (manifest, ok)))

    def _saved(self, manifest: Manifest, ok: bool) -> None:
        if self.coordinator is None or self.coordinator.current_id != manifest.id:
            return
        if not ok:
            self.failed(self.coordinator.abort("the manifest cannot be written"))
            return
        self.manifest = manifest
        self.decide(manifest)

    def decide(self, manifest: Manifest) -> None:
        """The catalog takes it, or does not answer: then it is asked again, until the clock ends it."""
        assert self.coordinator is not None
        try:
            self.world.catalog.commit(self.incarnation, manifest)
        except CatalogError:
            return
        self.coordinator.begin("commit")
        self._next("commit", set(self.world.parts))

    def committed(self, coordinator: CheckpointCoordinator, name: str, number: int) -> None:
        """A part has committed; after the last one the checkpoint is complete."""
        phase = coordinator.phase
        if not isinstance(phase, InProgress) or phase.id != number or phase.step != "commit":
            return
        self.waiting.discard(name)
        if self.waiting:
            return
        coordinator.done()
        saved = self.world.manifests.saved
        for old in [each for each in saved.values() if each.epoch < coordinator.min_epoch]:
            del saved[old.id]
        if coordinator.has_stopped:
            self.world.catalog.stopped(self.incarnation)
            self.die("stopped")
