"""Pipelines: sources, operators and sinks in one process, checkpointed by epoch and brought back by name.

    pipeline = Pipeline("ad-join", catalog="sqlite:///state/catalog.db", state="state/pipelines")
    pipeline.source("impressions", ParquetSource("in/impressions"), time="ts", delay=timedelta(seconds=10))
    pipeline.source("clicks", ParquetSource("in/clicks"), time="ts", delay=timedelta(seconds=10))
    pipeline.operator("join", lambda: IntervalJoin(...), inputs=["impressions", "clicks"])
    pipeline.sink("out", FileSink("out"), input="join")
    pipeline.run()

Small on purpose: a process and its threads; scale is Spark's. A job is known by its name in the catalog: started
again, it goes on from its last checkpoint, and the result is that of a run without a break. Any thread may call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from iopool import LocalFileSystem, MemoryController, WorkerPool, above, make_dirs
from lsmstate.checkpoint.catalog import Catalog, JobKind
from lsmstate.checkpoint.connect.sink import Sink
from lsmstate.checkpoint.connect.source import Source
from lsmstate.checkpoint.coordinator.coordinator import CheckpointCoordinator
from lsmstate.checkpoint.coordinator.events import Event
from lsmstate.checkpoint.coordinator.phases import PhaseTimeouts
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.checkpoint.operator import Operator
from lsmstate.checkpoint.runtime.building import Place, build
from lsmstate.checkpoint.runtime.completion import Completion
from lsmstate.checkpoint.runtime.driver import Driver
from lsmstate.checkpoint.runtime.ending import Ending
from lsmstate.checkpoint.runtime.graph import Graph
from lsmstate.checkpoint.runtime.recovery import recover, retained
from lsmstate.checkpoint.runtime.run import Run
from lsmstate.checkpoint.runtime.starting import starting
from lsmstate.errors import CheckpointError, FencedError


class Pipeline:
    """One job. See the module; `docs/checkpoints.md` tells the whole story.

    state: a directory for the state of all jobs. checkpoint_interval: how often. align_timeout: after how long a
    checkpoint no longer waits for slow inputs and takes records in flight along; None: it always waits. retain: how
    many checkpoints are kept. memory_bytes: what all operators together keep in memory before they spill. kind,
    definition: what the catalog keeps of the job, for whoever makes it anew from that; unless told, its graph.
    on_event: told of what happens to checkpoints, in a thread of the job.
    """

    def __init__(
        self,
        name: str,
        *,
        catalog: str | Catalog,
        state: str | os.PathLike[str],
        checkpoint_interval: timedelta = timedelta(seconds=60),
        align_timeout: timedelta | None = None,
        retain: int = 10,
        timeouts: PhaseTimeouts | None = None,
        failures_max: int = 3,
        memory_bytes: int | None = None,
        comment: str = "",
        kind: JobKind = "pipeline",
        definition: Mapping[str, Any] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        _check_span("checkpoint_interval", checkpoint_interval)
        if align_timeout is not None:
            _check_span("align_timeout", align_timeout)
        for what, number in (("retain", retain), ("failures_max", failures_max), ("memory_bytes", memory_bytes or 1)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"{what} must be a whole number of at least 1, not {number!r}")
        self.name, self._comment, self._kind, self._definition = name, comment, kind, definition
        self._catalog_url, self._state = catalog, os.fspath(state)
        self._interval, self._align_timeout = checkpoint_interval, align_timeout
        self._retain, self._timeouts, self._failures_max = retain, timeouts, failures_max
        self._memory_bytes, self._on_event = memory_bytes, on_event
        self._graph = Graph()
        self._run: Run | None = None
        self.warnings: tuple[str, ...] = ()

    # ---- what it consists of

    def source(
        self, name: str, source: Source, *, time: str | None = None, delay: timedelta = timedelta(0)
    ) -> Pipeline:
        """Adds a source. time: the column of its event time, which drives the watermark; delay: how much older than the
        newest row another may be and is not late."""
        self._check_idle()
        self._graph.add_source(name, source, time, delay)
        return self

    def operator(
        self, name: str, make: Callable[[], Operator], *, inputs: Sequence[str], parallelism: int = 1
    ) -> Pipeline:
        """Adds an operator. make: gives one for each of `parallelism` instances, which divide the keys among them."""
        self._check_idle()
        self._graph.add_operator(name, make, inputs, parallelism)
        return self

    def sink(self, name: str, sink: Sink, *, input: str) -> Pipeline:  # noqa: A002  # what users call it
        """Adds a sink."""
        self._check_idle()
        self._graph.add_sink(name, sink, input)
        return self

    # ---- its life

    def run(self) -> int:
        """Runs until all sources have ended and everything is committed; gives the last epoch."""
        self.start()
        try:
            return self.wait()
        except KeyboardInterrupt:
            with suppress(CheckpointError):  # it may have ended by itself
                self.stop(savepoint=False)
            raise

    def start(self) -> None:
        """Goes on from the last checkpoint, or begins. Whoever drove the job before is fenced."""
        self._check_idle()
        self._graph.check_whole()
        before, self._run = self._run, None
        if before is not None:
            before.release()
        given = self._catalog_url
        run = Run(Catalog.open(given) if isinstance(given, str) else given, isinstance(given, str), WorkerPool())
        try:
            self._start(run)
        except BaseException:
            run.release()
            raise

    def _start(self, run: Run) -> None:
        catalog, fs = run.catalog, LocalFileSystem()
        definition = self._graph.definition() if self._definition is None else self._definition
        interval_ms = max(self._interval // timedelta(milliseconds=1), 1)
        job = catalog.register(
            self.name,
            kind=self._kind,
            definition=definition,
            comment=self._comment,
            checkpoint_interval_ms=interval_ms,
        )
        path = self._directory(fs, job.job_id)
        with starting(fs, self.name, path):
            incarnation = catalog.take(self.name)
            now = catalog.job(self.name)
            if now is None or now.job_id != job.job_id:
                raise FencedError(f"job {self.name!r} was dropped while it was started; start it again")
            self._begin(run, fs, path, incarnation, now.line)

    def _begin(self, run: Run, fs: LocalFileSystem, path: str, incarnation: int, line: int) -> None:
        store = ManifestStore(fs, f"{path}/checkpoints")
        restored = recover(run.catalog, self.name, incarnation, store, self._graph)
        self.warnings = restored.warnings
        memory = None
        if self._memory_bytes is not None:
            memory = MemoryController(max(self._memory_bytes // 2, 1), self._memory_bytes)
        align_s = None if self._align_timeout is None else self._align_timeout.total_seconds()
        job = f"{self.name}-{os.path.basename(path)}"
        place = Place(fs, path, job, incarnation, self._retain, align_s, memory, run.pool)
        completion = Completion(
            self.name, self._graph, run.catalog, incarnation, line, store, restored.manifest, self._retain
        )
        coordinator = CheckpointCoordinator(
            next_id=completion.next_id,
            epoch=restored.epoch,
            interval_s=self._interval.total_seconds(),
            timeouts=self._timeouts,
            retain=self._retain,
            retained=retained(store, restored),
            failures_max=self._failures_max,
            on_event=self._on_event,
        )
        driver = Driver(self._graph, coordinator, completion)
        sources, tasks = build(self._graph, place, restored, driver)
        try:
            if restored.manifest is not None and restored.manifest.uncommitted_sinks:
                completion.settle()  # they have committed when they were opened
        except BaseException:
            Ending(self.name, sources, tasks)
            raise
        run.driver, self._run = driver, run
        driver.run(sources, tasks)

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the job has ended; gives the last epoch. Raises what has ended it, TimeoutError if it goes on."""
        run, driver = self._running()
        driver.check_not_inside()
        if not driver.join(timeout):
            raise TimeoutError(f"job {self.name!r} still runs")
        run.release()
        if driver.error is not None:
            raise driver.error
        return driver.epoch

    def checkpoint(self, timeout: float | None = None) -> int:
        """Makes a checkpoint now; gives its epoch once it is committed."""
        _, driver = self._running()
        driver.check_not_inside()
        wish = driver.want_checkpoint()
        with driver.changed:
            done = driver.changed.wait_for(lambda: wish.epoch is not None or driver.ended.is_set(), timeout)
        if not done:
            raise TimeoutError(f"job {self.name!r}: no checkpoint was complete in time")
        return self.wait() if wish.epoch is None else wish.epoch

    def stop(self, *, savepoint: bool = True) -> int:
        """Ends the job, with a last checkpoint unless told; gives the last epoch. Rows after it come again."""
        _, driver = self._running()
        driver.check_not_inside()
        if savepoint:
            driver.want_checkpoint(then_stop=True)
        else:
            driver.cancel()
        return self.wait()

    @property
    def epoch(self) -> int:
        """The last committed one of this run."""
        return self._running()[1].epoch

    @property
    def has_ended(self) -> bool:
        """Whether the run is over; `wait` tells how."""
        return self._running()[1].ended.is_set()

    def _running(self) -> tuple[Run, Driver]:
        if self._run is None or self._run.driver is None:
            raise CheckpointError(f"job {self.name!r} was not started; call start() or run()")
        return self._run, self._run.driver

    def _check_idle(self) -> None:
        driver = None if self._run is None else self._run.driver
        if driver is None:
            return
        if not driver.ended.is_set():
            raise CheckpointError(f"job {self.name!r} runs already; stop it first")
        alive = [task.name for task in driver.stuck if not task.join(0)]
        if alive:
            raise CheckpointError(f"job {self.name!r}: {', '.join(alive)} of its last run did not end; end the process")

    def _directory(self, fs: LocalFileSystem, job_id: str) -> str:
        """The job's own: one that is dropped and made anew has another."""
        path = f"{fs.resolve(self._state)}/{job_id}"
        make_dirs(fs, path)
        fs.sync_dir(above(path))  # who made it may have died before it was durable
        return path


def _check_span(what: str, span: object) -> None:
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise ValueError(f"{what} must be a timedelta above zero, not {span!r}")
