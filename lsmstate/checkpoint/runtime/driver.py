"""The driver of one run of a pipeline: sends barriers, collects what tasks report, commits, and ends the run.

It has a thread of its own; whatever tasks or callers want of it they put into its queue, and it does one thing after
the other. Order of a checkpoint: barriers -> all operators durable -> sinks pre-committed -> manifest -> catalog
(from here on it counts) -> operators and sinks commit. A failure before the manifest undoes the attempt; later ones
end the run, and the next one begins with what the catalog has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.coordinator.coordinator import CheckpointCoordinator
from lsmstate.checkpoint.coordinator.events import EventKind
from lsmstate.checkpoint.coordinator.phases import Failed, InProgress, OperatorSnapshot
from lsmstate.checkpoint.runtime import inbox as box
from lsmstate.checkpoint.runtime.completion import Completion
from lsmstate.checkpoint.runtime.ending import Ending, Task
from lsmstate.checkpoint.runtime.graph import Graph
from lsmstate.checkpoint.runtime.operator_task import OperatorTask
from lsmstate.checkpoint.runtime.source_task import SourceTask
from lsmstate.errors import CatalogError, CheckpointError, LsmStateError

_LOOK_S = 0.02  # how often clocks are looked at
_log = logging.getLogger("lsmstate.checkpoint")


class Driver:
    """One run. `ended` is set when it is over; `error` then says why, None if it ended as it should."""

    def __init__(self, graph: Graph, coordinator: CheckpointCoordinator, completion: Completion) -> None:
        self._name, self._graph = completion.name, graph
        self._coordinator, self._completion = coordinator, completion
        self._sources: dict[str, SourceTask] = {}
        self._tasks: dict[str, OperatorTask] = {}
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._drained: set[str] = set()
        self._staged: dict[str, bytes] = {}
        self._to_commit: set[str] = set()
        self._stop = False
        self._wishes: list[Wish] = []
        self._granted: list[Wish] = []  # by the checkpoint that is under way
        self._thread = threading.Thread(target=self._run, name=f"lsmstate-{self._name}", daemon=True)
        self.error: BaseException | None = None
        self.stuck: list[Task] = []  # their threads did not end
        self.ended = threading.Event()
        self.changed = threading.Condition()  # told when a checkpoint is complete, or the run ends

    def run(self, sources: Collection[SourceTask], tasks: Collection[OperatorTask]) -> None:
        """Starts the tasks, and the thread."""
        self._sources = {task.name: task for task in sources}
        self._tasks = {task.name: task for task in tasks}
        for name in (*self._sources, *self._tasks):
            self._coordinator.register(name)
        self._thread.start()

    @property
    def epoch(self) -> int:
        """The last committed one."""
        return self._coordinator.epoch

    def want_checkpoint(self, *, then_stop: bool = False) -> Wish:
        """Asks for a checkpoint as soon as may be: one that begins after the call."""
        wish = Wish()

        def want() -> None:
            self._wishes.append(wish)
            self._stop = self._stop or then_stop

        self._queue.put(want)
        return wish

    def check_not_inside(self) -> None:
        """Raises in a thread of the run, which would wait for itself."""
        tasks: list[Task] = [*self._sources.values(), *self._tasks.values()]
        own = [self._thread, *(task.thread for task in tasks)]
        if threading.current_thread() in own:
            raise CheckpointError(f"job {self._name!r}: a thread of the job cannot wait for it; ask from another one")

    def cancel(self) -> None:
        """Ends the run without a checkpoint."""

        def end() -> None:
            raise _Cancelled

        self._queue.put(end)

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the end of the run."""
        return self.ended.wait(timeout)

    # ---- what tasks report, from their threads

    def acknowledge(self, snapshot: OperatorSnapshot) -> None:
        """A task has made its part of a checkpoint durable."""
        self._queue.put(lambda: self._on_acknowledged(snapshot))

    def staged(self, task: str, checkpoint_id: int, told: bytes) -> None:
        """A sink has pre-committed."""
        self._queue.put(lambda: self._on_staged(task, checkpoint_id, told))

    def decline(self, task: str, checkpoint_id: int, error: Exception) -> None:
        """A task could not."""
        self._queue.put(lambda: self._on_declined(task, checkpoint_id, error))

    def committed(self, task: str, epoch: int, error: Exception | None) -> None:
        """A task has committed, or could not."""
        self._queue.put(lambda: self._on_committed(task, epoch, error))

    def failed(self, task: str, error: BaseException) -> None:
        """A task has ended by an error."""

        def end() -> None:
            if isinstance(error, LsmStateError):
                error.add_note(f"in {task} of job {self._name!r}")
                raise error
            raise CheckpointError(f"job {self._name!r}: {task} failed: {error!r}") from error

        self._queue.put(end)

    def drained(self, task: str) -> None:
        """All inputs of a task have ended."""
        self._queue.put(lambda: self._drained.add(task))

    def note(self, kind: EventKind, barrier: CheckpointBarrier, task: str) -> None:
        """A task tells how far it has come."""

        def tell() -> None:
            if self._coordinator.current_id == barrier.checkpoint_id:
                self._coordinator.progress(kind, task, barrier.checkpoint_id)

        self._queue.put(tell)

    # ---- the thread

    def _run(self) -> None:
        try:
            for task in self._tasks.values():
                task.start()
            for source in self._sources.values():
                source.start()
            while not self._coordinator.has_stopped:
                self._step()
        except _Cancelled:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self._shut_down()

    def _step(self) -> None:
        with suppress(Empty):
            self._queue.get(timeout=_LOOK_S)()
        failure = self._coordinator.tick()
        if failure is not None:
            self._on_failure(failure)
        self._commit()
        if isinstance(self._coordinator.phase, InProgress) or self._coordinator.has_stopped:
            return
        if not self._stop and self._drained.issuperset(self._tasks):
            self._stop = True  # all rows are through: the last checkpoint
        if self._stop or self._wishes or self._coordinator.should_checkpoint():
            self._begin()

    def _begin(self) -> None:
        if self._coordinator.consecutive_failures and not self._coordinator.should_checkpoint():
            return  # backs off
        try:
            barrier = self._coordinator.initiate(then_stop=self._stop)
        except CatalogError as error:
            _log.warning("job %s: no checkpoint can begin: %s", self._name, error)
            return
        self._granted, self._wishes = self._wishes, []
        self._staged, self._to_commit = {}, set()
        told = [task.inject(barrier) for task in self._sources.values()]
        ended = {snapshot.operator for snapshot in told if snapshot.has_ended}
        for name, task in self._tasks.items():
            if self._graph.roots(name.partition(".")[0]) <= ended:  # no barrier comes that far
                task.inbox.command(box.Start(barrier))
        for snapshot in told:
            self._on_acknowledged(snapshot)

    def _on_acknowledged(self, snapshot: OperatorSnapshot) -> None:
        try:
            is_last = self._coordinator.acknowledge(snapshot)
        except CheckpointError as error:  # late: of an attempt that is over
            _log.info("job %s: %s", self._name, error)
            return
        if is_last:
            self._coordinator.begin("pre_commit")
            for name in self._graph.sinks:
                self._tasks[name].inbox.command(box.PreCommit(snapshot.checkpoint_id))

    def _on_staged(self, task: str, checkpoint_id: int, told: bytes) -> None:
        if checkpoint_id != self._coordinator.current_id:
            return
        self._staged[task] = told
        if self._staged.keys() == self._graph.sinks.keys():
            self._persist()

    def _on_declined(self, task: str, checkpoint_id: int, error: Exception) -> None:
        if checkpoint_id == self._coordinator.current_id:
            _log.warning(
                "job %s: %s cannot take part in checkpoint %s", self._name, task, checkpoint_id, exc_info=error
            )
            self._on_failure(self._coordinator.decline(task, checkpoint_id, repr(error)))

    def _on_failure(self, failure: Failed) -> None:
        if failure.must_recover:
            raise CheckpointError(
                f"job {self._name!r}: checkpoint {failure.id} of epoch {failure.epoch} failed when it may count "
                f"already: {failure.reason}; start the job again, it goes on where the catalog says"
            )
        _log.warning("job %s: checkpoint %s failed: %s", self._name, failure.id, failure.reason)
        self._wishes, self._granted = [*self._granted, *self._wishes], []
        for task in self._tasks.values():
            task.inbox.command(box.Abort(failure.epoch, failure.id))

    def _persist(self) -> None:
        running = self._coordinator.phase
        assert isinstance(running, InProgress)
        self._coordinator.begin("persist")
        self._completion.save(running, self._coordinator.snapshots, self._staged)
        self._commit()

    def _commit(self) -> None:
        """Lets everybody commit what the catalog has taken."""
        manifest = self._completion.try_commit()
        if manifest is None:
            return
        self._coordinator.begin("commit")
        self._to_commit = set(self._tasks)
        for source in self._sources.values():
            source.retire(self._coordinator.min_epoch)
        for task in self._tasks.values():
            task.inbox.command(box.Commit(manifest.epoch))

    def _on_committed(self, task: str, epoch: int, error: Exception | None) -> None:
        if error is not None:
            self._completion.note_failure(task, error)
            raise CheckpointError(
                f"job {self._name!r}: {task} could not commit epoch {epoch}: {error}; start it again, which does it"
            ) from error
        self._to_commit.discard(task)
        if not self._to_commit:
            self._completion.settle()
            assert self._completion.last is not None
            self._coordinator.done(size_bytes=self._completion.last.size_bytes)
            with self.changed:
                for wish in self._granted:
                    wish.epoch = self._coordinator.epoch
                self._granted = []
                self.changed.notify_all()

    def _shut_down(self) -> None:
        ending = Ending(self._name, list(self._sources.values()), list(self._tasks.values()))
        self.stuck, self.error = ending.stuck, self.error or ending.error
        self.ended.set()
        with self.changed:
            self.changed.notify_all()


@dataclass(eq=False)
class Wish:
    """A checkpoint that somebody has asked for; its epoch once it is committed."""

    epoch: int | None = None


class _Cancelled(Exception):
    """The run was told to end."""
