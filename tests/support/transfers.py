"""Readers in threads while a writer appends, removes, publishes, restores and compacts: every view is one moment.

A transfer is two rows, +n on side 0 and -n on side 1, and an epoch holds whole transfers. So in any committed epoch
both sides hold the same keys; and in any snapshot side 0 is at most the one transfer ahead that is under way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from lsmstate import EpochError, Options, Side, SnapshotExpired, StateStore, View
from tests.support.states import batch, plain, sides

READERS = 3
TRANSFERS = 20  # per epoch
KEPT_US = 3 * TRANSFERS


def keys(view: View | StateStore, side: int) -> list[int]:
    return sorted(row[0] for row in plain(view.scan(side)))


class Stress:
    """One writer and some readers; `errors` holds what any of them raised."""

    def __init__(self, path: str, seconds: float) -> None:
        self.path, self.deadline = path, monotonic() + seconds
        self.kinds: list[Side] = sides(retention=KEPT_US, bucket=7)
        self.store = StateStore.open(path, self.kinds, Options(retain=2, memtable_bytes=2000, batch_rows=16))
        self.errors: list[BaseException] = []
        self.reads = 0
        self.epochs = self.begun = (self.store.epochs() or [0])[-1]

    def run(self) -> None:
        threads = [threading.Thread(target=self._guarded, args=(self._read,)) for _ in range(READERS)]
        threads.append(threading.Thread(target=self._guarded, args=(self._read_elsewhere,)))
        for thread in threads:
            thread.start()
        self._guarded(self._write)
        for thread in threads:
            thread.join(60.0)
            assert not thread.is_alive()
        assert self.store.verify() == []
        assert self.store.stats().collection_error is None
        self.store.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            while monotonic() < self.deadline and not self.errors:
                work()
        except BaseException as error:
            self.errors.append(error)

    def _write(self) -> None:
        epoch = self.epochs + 1
        first = epoch * TRANSFERS
        for n in range(first, first + TRANSFERS):
            self.store.append(0, batch((n, n, "+")))
            self.store.append(1, batch((n, n, "-")))
        self.store.advance_watermark(first)
        if epoch % 5 == 0:
            for side in (0, 1):
                self.store.remove(side, first, first + 3)
        self.store.snapshot_epoch(epoch)
        self.epochs = epoch
        if epoch % 11 == 0:
            self.store.compact(major=epoch % 2 == 0)
        if epoch % 7 == 0 and epoch - 1 in self.store.epochs():
            self.store.restore(epoch - 1)
            self.store.snapshot_epoch(epoch)

    def _read(self) -> None:
        with self.store.snapshot() as view:
            right, left = keys(view, 1), keys(view, 0)
            ahead = set(left) ^ set(right)
            assert len(ahead) <= 3, f"{len(ahead)} keys on one side only"
            assert len(set(left)) == len(left)
            assert (left, right) == (keys(view, 0), keys(view, 1)), "a view changed"
            self._probe(view, left)
        if self.epochs:
            self._read_epoch(self.store)
        self.reads += 1

    def _read_elsewhere(self) -> None:
        """Another handle, which learns of collection only through its pins."""
        with StateStore.open(self.path, read_only=True) as other:
            if other.epochs():
                self._read_epoch(other)
        self.reads += 1

    def _read_epoch(self, store: StateStore) -> None:
        try:
            view = store.at_epoch(store.epochs()[-1])
        except (EpochError, SnapshotExpired):
            return  # retired in the meantime
        with view:
            assert keys(view, 0) == keys(view, 1), "an epoch holds half a transfer"

    def _probe(self, view: View, left: list[int]) -> None:
        if left:
            asked = [(n, n, None) for n in left]
            found = sorted(row[0] for row in plain(view.probe(0, batch(*asked), 0, 0)))
            assert found == left
