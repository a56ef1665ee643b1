"""What is durable in a simulated job beside its parts: manifests and the catalog, with the checks of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from lsmstate.checkpoint.catalog import CheckpointRow, JobRow
from lsmstate.errors import CatalogError, EpochError, FencedError

if TYPE_CHECKING:
    from tests.support.sim_checkpoint import World

JOB = "job"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Manifest:
    """As much of a manifest as recovery needs. then_stop: for the checks alone."""

    id: int
    epoch: int
    incarnation: int
    offsets: Mapping[str, Mapping[str, str]]
    timestamp_ms: int
    then_stop: bool = False

    def row(self) -> CheckpointRow:
        """As the catalog keeps it. Equal whenever it is made, so that a repeated commit is seen to be one."""
        return CheckpointRow(self.id, self.epoch, timestamp_ms=self.timestamp_ms)


@dataclass
class Manifests:
    """Those that have landed."""

    saved: dict[int, Manifest] = field(default_factory=dict)


class MemoryCatalog:
    """The catalog of one job, in memory, with the interface of the real one."""

    def __init__(self) -> None:
        self._job = JobRow(JOB, "0" * 32, "pipeline", 0, {})
        self._rows: list[CheckpointRow] = []
        self._offsets: dict[int, Mapping[str, Mapping[str, str]]] = {}
        self._last_id = 0

    def job(self, name: str) -> JobRow:
        return self._job

    def take(self, name: str) -> int:
        self._job = replace(self._job, incarnation=self._job.incarnation + 1)
        return self._job.incarnation

    def check(self, name: str, incarnation: int) -> None:
        if incarnation != self._job.incarnation:
            raise FencedError(f"incarnation {incarnation}: {self._job.incarnation} has taken the job")

    def next_checkpoint_id(self, name: str, incarnation: int) -> int:
        self.check(name, incarnation)
        self._last_id += 1
        return self._last_id

    def commit_job_checkpoint(
        self, name: str, incarnation: int, checkpoint: CheckpointRow, offsets: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.check(name, incarnation)
        if self._rows and self._rows[-1] == checkpoint and self._offsets[checkpoint.checkpoint_id] == offsets:
            return
        if checkpoint.epoch <= self._job.latest_checkpoint_epoch:
            raise EpochError(f"epoch {checkpoint.epoch} does not go forward")
        self._rows.append(checkpoint)
        self._offsets[checkpoint.checkpoint_id] = offsets
        self._job = replace(
            self._job, latest_checkpoint_epoch=checkpoint.epoch, latest_checkpoint_id=checkpoint.checkpoint_id
        )

    def checkpoints(self, name: str) -> list[CheckpointRow]:
        return self._rows

    def source_checkpoints(self, name: str, checkpoint_id: int | None = None) -> Mapping[str, Mapping[str, str]]:
        return self._offsets[checkpoint_id or self._rows[-1].checkpoint_id]


class WatchedCatalog:
    """A catalog that fails now and then, before or after it has done what it was asked; checked at every change."""

    def __init__(self, world: World, inner: Any) -> None:
        self.world, self.inner = world, inner
        self.epoch, self.stopped_at = 0, None  # type: int, float | None
        self.offsets: dict[int, dict[str, int]] = {0: dict.fromkeys(world.operators, 0)}  # by epoch
        self.ids: dict[int, int] = {}  # by epoch
        self._taken, self._given = 0, set[int]()

    def _ask(self, act: Callable[[], T]) -> T:
        if not self.world.chance(self.world.weather.catalog):
            return act()
        self.world.faults["catalog failed"] += 1
        if self.world.rng.random() < 0.5:
            act()
        raise CatalogError("the connection is gone", "down")

    def job(self) -> JobRow:
        row: JobRow = self._ask(lambda: self.inner.job(JOB))
        return row

    def checkpoints(self) -> list[CheckpointRow]:
        rows: list[CheckpointRow] = self._ask(lambda: self.inner.checkpoints(JOB))
        return rows

    def check(self, incarnation: int) -> None:
        self._ask(lambda: self.inner.check(JOB, incarnation))

    def take(self) -> int:
        def act() -> int:
            number = int(self.inner.take(JOB))
            if number <= self._taken:
                self.world.fail(f"incarnation {number} is given out after {self._taken}")
            self._taken, self.stopped_at = number, None  # whoever takes a job that has stopped starts it again
            self.world.note("taken", number)
            return number

        return self._ask(act)

    def next_id(self, incarnation: int) -> int:
        return self._ask(lambda: int(self.inner.next_checkpoint_id(JOB, incarnation)))

    def begun(self, checkpoint_id: int) -> None:
        """An attempt starts under this id."""
        if checkpoint_id in self._given:
            self.world.fail(f"checkpoint id {checkpoint_id} is used again")
        self._given.add(checkpoint_id)

    def commit(self, incarnation: int, manifest: Manifest) -> None:
        def act() -> None:
            self.inner.commit_job_checkpoint(JOB, incarnation, manifest.row(), manifest.offsets)
            if manifest.epoch == self.epoch and manifest.id == self.ids[self.epoch]:
                return  # repeated
            self._check_commit(incarnation, manifest)
            self.epoch = manifest.epoch
            self.world.note("committed", manifest.epoch, manifest.id, incarnation)

        self._ask(act)

    def stopped(self, incarnation: int) -> None:
        """A driver that was told to stop has done so. Once another has taken the job, it stops itself, not the job."""
        if incarnation == self._taken:
            self.stopped_at = self.world.now

    def _check_commit(self, incarnation: int, manifest: Manifest) -> None:
        world, offsets = self.world, {name: int(told["at"]) for name, told in manifest.offsets.items()}
        if self.stopped_at is not None:
            world.fail(f"epoch {manifest.epoch} is committed after the job has stopped")
        if incarnation != self._taken:
            world.fail(f"incarnation {incarnation} commits epoch {manifest.epoch}, though {self._taken} has the job")
        if manifest.epoch != self.epoch + 1:
            world.fail(f"epoch {manifest.epoch} is committed after {self.epoch}")
        if manifest.id in self.ids.values():
            world.fail(f"checkpoint {manifest.id} is committed a second time")
        if world.manifests.saved.get(manifest.id) != manifest:
            world.fail(f"checkpoint {manifest.id} is committed, its manifest is not durable")
        if offsets.keys() != world.operators.keys():
            world.fail(f"checkpoint {manifest.id} is committed with offsets of {sorted(offsets)} only")
        for name, operator in world.operators.items():
            if offsets[name] < self.offsets[self.epoch][name]:
                world.fail(f"offset of {name} goes back to {offsets[name]}")
            candidate = operator.candidates.get(manifest.id)
            if candidate is None:
                world.fail(f"epoch {manifest.epoch} is committed, {name} has not made checkpoint {manifest.id} durable")
            elif candidate[1] != tuple(range(1, offsets[name] + 1)):
                world.fail(f"epoch {manifest.epoch}: state of {name} is not what came up to its offset")
        for sink in world.sinks.values():
            staged = sink.staged.get(manifest.id)
            if staged is None or staged[0] != manifest.epoch:
                world.fail(f"epoch {manifest.epoch} is committed, {sink.name} has not staged it")
        self.offsets[manifest.epoch] = offsets
        self.ids[manifest.epoch] = manifest.id
