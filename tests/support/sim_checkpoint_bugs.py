"""Mistakes in the protocol of checkpoints, each made on purpose: the simulation must find every one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.catalog import CheckpointRow
from lsmstate.checkpoint.coordinator.coordinator import CheckpointCoordinator, OperatorSnapshot
from lsmstate.checkpoint.coordinator.phases import Failed
from tests.support.sim_checkpoint import Design
from tests.support.sim_checkpoint_driver import Driver
from tests.support.sim_checkpoint_parts import Operator, Sink
from tests.support.sim_checkpoint_stores import Manifest, MemoryCatalog


class AcknowledgesBeforeDurable(Operator):
    def snapshot(self, number: int, epoch: int) -> None:
        at = len(self.kept)
        self.world.to_drivers("acknowledged", OperatorSnapshot(self.name, number, offsets={"at": str(at)}))
        super().snapshot(number, epoch)


class SnapshotAfterTheBarrier(Operator):
    """Rows that come while the snapshot is written go into it."""

    def written(self, number: int, epoch: int, state: tuple[int, ...]) -> None:
        super().written(number, epoch, tuple(self.kept))


class StartsTwiceInAnIncarnation(Operator):
    """Comes back after a crash where a late message tells it to, though the others have gone on."""

    def kill(self) -> None:
        super().kill()
        self.started = 0


class CommitsBeforeAllReports(CheckpointCoordinator):
    def acknowledge(self, snapshot: OperatorSnapshot) -> bool:
        if super().acknowledge(snapshot):
            return True
        if self._attempt is not None and self._attempt.step in ("align", "snapshot"):
            self._attempt.expected = frozenset(self._attempt.snapshots)
            return True
        return False


class UsesIdsAgain(CheckpointCoordinator):
    """Counts on from the last complete checkpoint."""

    def initiate(self, **options: Any) -> CheckpointBarrier:
        fresh = self._next_id
        if isinstance(self._failed, Failed):
            self._next_id, self._last_id = lambda: self._failed.id, 0  # type: ignore[union-attr]
        try:
            return super().initiate(**options)
        finally:
            self._next_id, self._failed = fresh, None

    _failed: Failed | None = None

    def _fail(self, reason: str) -> Failed:
        self._failed = super()._fail(reason)
        return self._failed


class CountsStrangers(CheckpointCoordinator):
    """Counts reports instead of operators, whoever sent them."""

    def acknowledge(self, snapshot: OperatorSnapshot) -> bool:
        if snapshot.operator not in self.operators and self.pending and snapshot.checkpoint_id == self.current_id:
            snapshot = replace(snapshot, operator=self.pending[0])
        return super().acknowledge(snapshot)


class CountsReportsTwice(CheckpointCoordinator):
    def acknowledge(self, snapshot: OperatorSnapshot) -> bool:
        if snapshot.operator in self.snapshots and self.pending and snapshot.checkpoint_id == self.current_id:
            snapshot = replace(snapshot, operator=self.pending[0])
        return super().acknowledge(snapshot)


class TimesOutOnReportsOnly(CheckpointCoordinator):
    def tick(self) -> Failed | None:
        return None if self.current_id is not None else super().tick()

    def acknowledge(self, snapshot: OperatorSnapshot) -> bool:
        super().tick()
        return super().acknowledge(snapshot)


class TimesOutByTheWall(CheckpointCoordinator):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"clock": lambda: options["now_ms"]() / 1000})


class CollectsWhatIsRetained(CheckpointCoordinator):
    """Tells operators that all epochs before the one under way may go."""

    @property
    def min_epoch(self) -> int:
        return self.epoch + 1


class NotFenced(MemoryCatalog):
    def commit_job_checkpoint(
        self, name: str, incarnation: int, checkpoint: CheckpointRow, offsets: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().commit_job_checkpoint(name, self._job.incarnation, checkpoint, offsets)


class RollsBackWhatTheCatalogHas(Sink):
    """What is pending at a restart is dropped."""

    def restore(self, epoch: int, checkpoint_id: int) -> None:
        self.staged.clear()
        super().restore(epoch, checkpoint_id)


class DropsAbortedRows(Sink):
    """Though nobody sends them again."""

    def abort(self, incarnation: int, checkpoint_id: int) -> None:
        if incarnation == self.session and checkpoint_id in self.staged:
            for waiting in self.waiting.values():
                del waiting[: waiting.index(checkpoint_id)]
        super().abort(incarnation, checkpoint_id)


class UndoesWhatMayCount(Driver):
    """Goes on in the same incarnation though a manifest may be durable, or land late."""

    def failed(self, failed: Failed) -> None:
        if failed.step == "persist" and self.coordinator is not None:
            self.coordinator._cadence._lost = None
            failed = replace(failed, step="pre_commit")
        super().failed(failed)


class RollsForwardAnyManifest(Driver):
    """Also one of a driver before the one before, which landed late."""

    def counts(self, manifest: Manifest) -> bool:
        return manifest.incarnation < self.incarnation


class SinksCommitBeforeTheCatalog(Driver):
    def decide(self, manifest: Manifest) -> None:
        for name in sorted(self.world.sinks):
            self.world.send(self.world.sinks[name].commit, self.incarnation, manifest.epoch, manifest.id)
        super().decide(manifest)


BUGS: dict[str, Design] = {
    "acknowledged before durable": Design(operator=AcknowledgesBeforeDurable),
    "committed before all reports": Design(coordinator=CommitsBeforeAllReports),
    "id used again after a failure": Design(coordinator=UsesIdsAgain),
    "report of a stranger counted": Design(coordinator=CountsStrangers),
    "repeated report counted twice": Design(coordinator=CountsReportsTwice),
    "commit in the catalog not fenced": Design(catalog=NotFenced),
    "sink rolled back what the catalog has": Design(sink=RollsBackWhatTheCatalogHas),
    "timeouts only when somebody reports": Design(coordinator=TimesOutOnReportsOnly),
    "timeouts by the clock on the wall": Design(coordinator=TimesOutByTheWall),
    "retained epochs collected": Design(coordinator=CollectsWhatIsRetained),
    "rows after the barrier in the snapshot": Design(operator=SnapshotAfterTheBarrier),
    "operator started twice in an incarnation": Design(operator=StartsTwiceInAnIncarnation),
    "rows of an aborted epoch dropped": Design(sink=DropsAbortedRows),
    "undone though its manifest may be durable": Design(driver=UndoesWhatMayCount),
    "manifest that landed late rolled forward": Design(driver=RollsForwardAnyManifest),
    "sinks committed before the catalog": Design(driver=SinksCommitBeforeTheCatalog),
}
