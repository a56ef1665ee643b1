"""Parts of pipelines that fail, wait or count when a test wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from lsmstate.checkpoint import CheckpointBarrier, FileSink, Operator, OperatorContext, TableSource


class Waiting(TableSource):
    """Gives a number of rows, then waits until it may go on."""

    def __init__(self, table: pa.Table, before: int, batch_rows: int = 40) -> None:
        super().__init__(table, batch_rows=batch_rows)
        self._before, self._seen = before, 0
        self.go_on, self.waits = threading.Event(), threading.Event()

    def allow(self, more: int) -> None:
        """Lets it give more rows before it waits again."""
        self.waits.clear()
        self._before += more

    def read(self) -> pa.RecordBatch | None:
        if self._seen >= self._before and not self.go_on.is_set():
            self.waits.set()
            return None
        batch = super().read()
        self._seen += 0 if batch is None else batch.num_rows
        return batch

    @property
    def ended(self) -> bool:
        return super().ended and (self.go_on.is_set() or self._seen < self._before)


class Faulty(FileSink):
    """A sink some of whose calls raise: `fails` maps a call and how often it was made to an error, or None."""

    def __init__(self, path: Any, fails: Callable[[str, int], Exception | None]) -> None:
        super().__init__(path)
        self._fails, self.calls = fails, {"write": 0, "pre_commit": 0, "commit": 0, "abort": 0}

    def _count(self, call: str) -> None:
        self.calls[call] += 1
        error = self._fails(call, self.calls[call])
        if error is not None:
            raise error

    def write(self, batch: pa.RecordBatch) -> None:
        self._count("write")
        super().write(batch)

    def pre_commit(self, epoch: int) -> dict[str, Any]:
        self._count("pre_commit")
        return super().pre_commit(epoch)

    def commit(self, epoch: int) -> None:
        self._count("commit")
        super().commit(epoch)

    def abort(self, epoch: int) -> None:
        self._count("abort")
        super().abort(epoch)


class Passing(Operator):
    """Passes rows on; `before` is called with each batch, `hook` with each barrier."""

    def __init__(
        self,
        before: Callable[[pa.RecordBatch], None] = lambda batch: None,
        hook: Callable[[CheckpointBarrier], bool] = lambda barrier: True,
    ) -> None:
        self._before, self._hook = before, hook
        self.seen: list[str] = []

    def on_start(self, context: OperatorContext) -> None:
        self.seen.append(f"start at {context.safe_epoch}")

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        self._before(batch)
        yield batch

    def handle_checkpoint(self, barrier: CheckpointBarrier) -> bool:
        self.seen.append(f"hook {barrier.epoch}")
        return self._hook(barrier)

    def commit(self, epoch: int) -> None:
        self.seen.append(f"commit {epoch}")

    def abort(self, epoch: int) -> None:
        self.seen.append(f"abort {epoch}")


class Counting(Operator):
    """Numbers the rows that have passed, by a count that a checkpoint keeps as bytes."""

    def __init__(self) -> None:
        self.count = 0

    def on_start(self, context: OperatorContext) -> None:
        self.count = 0 if context.saved is None else int(context.saved)

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        first, self.count = self.count, self.count + batch.num_rows
        yield batch.append_column("place", pa.array(range(first, self.count), pa.int64()))

    def state(self) -> bytes:
        return b"%d" % self.count
