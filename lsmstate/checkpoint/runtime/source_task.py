"""The task of a source: reads, sends rows on, and knows exactly after which of them a barrier stands.

The thread of the task reads; the master puts barriers. Rows and the offsets after them change together under one lock,
and the task waits for room outside of it, so a barrier never waits for back-pressure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.connect.logged_source import POSITION, LoggedSource
from lsmstate.checkpoint.connect.source import Source
from lsmstate.checkpoint.coordinator.coordinator import OperatorSnapshot
from lsmstate.checkpoint.runtime.inbox import End, InboxClosed, Mark
from lsmstate.checkpoint.runtime.outputs import Outputs
from lsmstate.errors import CheckpointError
from lsmstate.keys import TS_MAX, saturate

_POLL_S = 0.01  # how long a source with nothing to say is left alone
_US = timedelta(microseconds=1)


class SourceTask:
    """One source at work. `failed` is called with what has ended it, if that was no wish."""

    def __init__(
        self,
        name: str,
        source: Source,
        time: str | None,
        delay: timedelta,
        outputs: Outputs,
        failed: Callable[[str, BaseException], None],
        watermark: int | None = None,
        had_ended: bool = False,
    ) -> None:
        self.name, self.source = name, source
        self._had_ended = had_ended
        self._time, self._delay_us = time, delay // _US
        self._outputs, self._failed = outputs, failed
        self._lock = threading.Lock()
        self._halt = threading.Event()
        self._position = source.offsets()
        self._sent: dict[int, dict[str, str]] = {}  # offsets by epoch
        self._passed: dict[str, str] | None = None  # those before which nothing will be asked for again
        self.watermark = watermark
        self.has_ended = False
        self.thread = threading.Thread(target=self._run, name=f"lsmstate-{name}", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        if self.watermark is not None:
            self._outputs.broadcast(Mark(self.watermark))
        self.thread.start()

    def inject(self, barrier: CheckpointBarrier) -> OperatorSnapshot:
        """Puts a barrier after what was sent, unless the source has ended; tells where that is. Never waits."""
        with self._lock:
            if not self.has_ended:
                self._outputs.broadcast(barrier)
            if barrier.then_stop:
                self._halt.set()
            offsets = dict(self._position)
            self._sent[barrier.epoch] = offsets
            wal = int(offsets[POSITION]) if isinstance(self.source, LoggedSource) else None  # fsynced: it was read
            return OperatorSnapshot(
                self.name,
                barrier.checkpoint_id,
                offsets=offsets,
                watermark=self.watermark,
                wal_position=wal,
                has_ended=self.has_ended,
            )

    def retire(self, min_epoch: int) -> None:
        """Epochs below will not be gone back to: what a log has kept for them may go."""
        with self._lock:
            self._passed = self._sent.get(min_epoch, self._passed)
            self._sent = {epoch: offsets for epoch, offsets in self._sent.items() if epoch >= min_epoch}

    def stop(self) -> None:
        """Ends reading, soon."""
        self._halt.set()

    def close(self) -> None:
        """Closes the source."""
        self.source.close()

    def join(self, timeout: float) -> bool:
        """Waits for the thread; True if it has ended."""
        if self.thread.ident is not None:
            self.thread.join(timeout)
        return not self.thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._halt.is_set():
                self._forget()
                batch = self.source.read()
                if batch is not None:
                    self._send(batch)
                elif self.source.ended:
                    self._end()
                    return
                else:
                    self._halt.wait(_POLL_S)
        except InboxClosed:
            pass  # the job stops
        except BaseException as error:
            self._failed(self.name, error)

    def _forget(self) -> None:
        passed, self._passed = self._passed, None
        if passed is not None and isinstance(self.source, LoggedSource):
            self.source.forget(passed)

    def _send(self, batch: pa.RecordBatch) -> None:
        if self._had_ended and self._time is not None:
            raise CheckpointError(
                f"source {self.name!r} had ended, which let the watermark pass all times, and gives rows again: all of "
                "them would be late. For a directory that grows use follow=True (in SQL 'follow' = 'true'); now take "
                "the new rows away, or drop the job and make it again"
            )
        offsets, newest = self.source.offsets(), self._newest(batch)
        places = self._outputs.make_ready(batch)
        with self._lock:
            if self._halt.is_set():
                return  # behind the last barrier: these rows come again after a restart
            self._outputs.put_all(places)
            self._position = offsets
            if newest is not None and (self.watermark is None or newest > self.watermark):
                self.watermark = newest
                self._outputs.broadcast(Mark(newest))

    def _end(self) -> None:
        with self._lock:
            if not self._halt.is_set():
                self._outputs.broadcast(Mark(TS_MAX))
                self._outputs.broadcast(End())
                self.has_ended = True

    def _newest(self, batch: pa.RecordBatch) -> int | None:
        """The watermark after a batch."""
        if self._time is None:
            return None
        newest = pc.max(batch.column(self._time))
        if pa.types.is_timestamp(newest.type):
            newest = newest.cast(pa.timestamp("us", newest.type.tz), safe=False)
        newest = newest.cast(pa.int64()).as_py()
        return None if newest is None else saturate(newest - self._delay_us - 1)
