"""The listener: what the driver learns of a join from the acknowledgements of its tasks, epoch by epoch.

For people, metrics and the catalog; nothing else depends on it. If it lags, or is lost with its driver, the state is as
good as ever. Threading: Spark calls it from a thread of its own; what it has gathered may be read from any thread.
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ACKS = "lsmstate:ack:"
_EPOCHS_KEPT = 1000
_log = logging.getLogger("lsmstate.spark")


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """One epoch of one join, summed over its partitions. Pairs are (left, right); times are microseconds."""

    job: str
    epoch: int
    batch_id: int
    partitions: int
    rows_in: tuple[int, int]
    rows_out: int
    late: tuple[int, int]
    ahead: tuple[int, int]  # further after those before than max_jump
    unkeyed: tuple[int, int]
    state_rows: tuple[int, int]
    state_bytes: int
    files: int
    runs: tuple[int, int]  # the most of any partition: what a probe looks into
    watermark_us: int | None
    idle: tuple[int, ...]  # sides that the watermark does not wait for
    busy_ms: float  # of the slowest task: its own work, without waiting for Spark
    batch_ms: int  # of the whole batch, as Spark counts
    candidates: tuple[str, ...]
    line: int = 1  # the history that the epoch belongs to


class Watcher(Protocol):
    """Who wants to know of the epochs of one join. Never raises, and never keeps the caller waiting."""

    def batch_ended(self, epoch: EpochProgress, progress: Any) -> None:
        """A batch has ended."""

    def query_ended(self, run: str) -> None:
        """No more batches of this run will come."""

    def close(self) -> None:
        """Another watches from now on."""


class Listener(StreamingQueryListener):
    """Gathers acknowledgements as batches end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: dict[str, Watcher] = {}
        self._epochs: dict[str, OrderedDict[tuple[str, int], EpochProgress]] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch has ended."""
        self.gather(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing new."""

    def onQueryTerminated(self, event: Any) -> None:
        """What was gathered stays."""
        with self._lock:
            watchers = list(self._watchers.values())
        for watcher in watchers:
            watcher.query_ended(str(event.runId))

    def watch(self, mark: str, watcher: Watcher | None) -> None:
        """Lets somebody know of the epochs of a join from now on, instead of whom it was; None for nobody."""
        with self._lock:
            before = self._watchers.pop(mark, None)
            if watcher is not None:
                self._watchers[mark] = watcher
        if before is not None:
            before.close()

    def gather(self, progress: Any) -> None:
        """Takes in the acknowledgements of one batch."""
        for mark, epoch in epochs_of(progress):
            with self._lock:
                watcher = self._watchers.get(mark)
                mine = self._epochs.setdefault(str(progress.id), OrderedDict())
                mine[epoch.job, epoch.epoch] = epoch
                while len(mine) > _EPOCHS_KEPT:
                    mine.popitem(last=False)
            if watcher is not None:
                watcher.batch_ended(epoch, progress)

    def knows(self, progress: Any) -> bool:
        """Whether the acknowledgements of a batch were taken in already."""
        with self._lock:
            mine = self._epochs.get(str(progress.id))
            return mine is not None and any(epoch.batch_id == progress.batchId for epoch in mine.values())

    def of(self, query_id: str) -> list[EpochProgress]:
        """What is known of a query, in the order of epochs."""
        with self._lock:
            return sorted(self._epochs.get(query_id, {}).values(), key=lambda epoch: (epoch.epoch, epoch.job))


_listeners: weakref.WeakKeyDictionary[Any, Listener] = weakref.WeakKeyDictionary()


def listen(session: SparkSession) -> Listener:
    """The listener of a session; registered when first asked for."""
    listener = _listeners.get(session)
    if listener is None:
        listener = _listeners[session] = Listener()
        session.streams.addListener(listener)
    return listener


def progress(query: StreamingQuery) -> list[EpochProgress]:
    """The last epochs of all joins in a query, in order: rows, state, watermark and time of each."""
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    listener = listen(session)
    for told in query.recentProgress:  # the listener hears of batches a little later than the query itself
        if not listener.knows(told):
            listener.gather(told)
    return listener.of(str(query.id))


def epochs_of(progress: Any) -> list[tuple[str, EpochProgress]]:
    """The epochs in one report of Spark, with the mark of their join: one for each join of the query."""
    found = []
    for name, row in (progress.observedMetrics or {}).items():
        if name.startswith(ACKS):
            mark = name.removeprefix(ACKS)
            job = mark.rpartition("#")[0]
            acks = {ack["partition"]: ack for ack in map(json.loads, row.acks)}
            for ack in acks.values():
                if ack["trouble"]:
                    _log.warning("%s, partition %s: %s", job, ack["partition"], ack["trouble"])
            missing = [number for number in range(_partitions(acks.values())) if number not in acks]
            if missing:
                _log.warning(
                    "%s, batch %s: no word from partitions %s. If the result is cut short downstream, by `limit` or "
                    "the like, the next batch will fail",
                    job,
                    progress.batchId,
                    missing,
                )
            if acks:
                found.append((mark, _summed(job, acks.values(), progress)))
    return found


def _partitions(acks: Iterable[dict[str, Any]]) -> int:
    return max((int(ack["partitions"]) for ack in acks), default=0)


def _summed(job: str, acks: Iterable[dict[str, Any]], progress: Any) -> EpochProgress:
    told = sorted(acks, key=lambda ack: int(ack["partition"]))

    def both(name: str) -> tuple[int, int]:
        return sum(ack[name][0] for ack in told), sum(ack[name][1] for ack in told)

    def total(name: str) -> int:
        return sum(int(ack[name]) for ack in told)

    return EpochProgress(
        job,
        int(told[0]["epoch"]),
        int(progress.batchId),
        len(told),
        both("rows_in"),
        total("rows_out"),
        both("late"),
        both("ahead"),
        both("unkeyed"),
        both("state_rows"),
        total("state_bytes"),
        total("files"),
        (max(ack["runs"][0] for ack in told), max(ack["runs"][1] for ack in told)),
        told[0]["watermark"],
        tuple(told[0]["idle"]),
        max(float(ack["busy_ms"]) for ack in told),
        int(progress.durationMs.get("triggerExecution", 0)),
        tuple(ack["candidate"] for ack in told),
        int(told[0]["line"]),
    )
