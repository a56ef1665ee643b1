"""A state much larger than its memory limit, in a process of its own: `python -m bench.memory_child PATH ROWS LIMIT`.

Appends, probes, compacts and retires under a `MemoryController`, and watches the process's anonymous memory all the
while. Prints the state's bytes, the highest anonymous memory of each stage, and that of the start.
"""

from __future__ import annotations

import json
import sys
import threading
from datetime import timedelta

import numpy as np

from bench.retention_runs import SCHEMA, SECOND_US
from bench.workload import keys_of, rows_of
from iopool import MemoryController
from lsmstate import Side, StateStore

EPOCH_ROWS = 250_000


def anonymous_bytes() -> int:
    """What the process holds that no file backs."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


class Watch:
    """Samples the memory of the process, stage by stage."""

    def __init__(self) -> None:
        self.peaks = {"start": anonymous_bytes()}
        self.stage = "append and probe"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.01):
            self.peaks[self.stage] = max(self.peaks.get(self.stage, 0), anonymous_bytes())

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def main(path: str, rows: int, limit: int) -> None:
    """Builds the state and takes it down again."""
    epochs = rows // EPOCH_ROWS
    side = Side("s", SCHEMA, ["key"], "ts", timedelta(seconds=2 * epochs))
    rng = np.random.default_rng(1)
    watch = Watch()
    with StateStore.open(path, [side], memory=MemoryController(limit // 2, limit)) as store:
        for epoch in range(1, epochs + 1):
            ids = np.arange(epoch * EPOCH_ROWS, (epoch + 1) * EPOCH_ROWS)
            ts = epoch * SECOND_US - rng.integers(0, 20 * SECOND_US, EPOCH_ROWS)
            store.append(0, rows_of(keys_of(ids, "int"), ts, rng))
            asked = rng.integers(EPOCH_ROWS, (epoch + 1) * EPOCH_ROWS, 50_000)
            probes = rows_of(keys_of(asked, "int"), np.full(len(asked), epoch * SECOND_US), rng)
            found = sum(batch.num_rows for batch in store.probe(0, probes, -4 * epochs * SECOND_US, 0))
            assert found == len(asked)
            store.advance_watermark((epoch - 20) * SECOND_US)
            store.snapshot_epoch(epoch)
        size = store.stats().file_bytes
        watch.stage = "compaction"
        store.compact(major=True)
        store.snapshot_epoch(epochs + 1)
        watch.stage = "GC"
        for step in range(1, 17):
            store.advance_watermark(epochs * SECOND_US * (16 + step) // 8)
            store.snapshot_epoch(epochs + 1 + step)
        left = store.stats().sides[0].rows
    watch.end()
    sys.stdout.write(json.dumps({"state_bytes": size, "rows_left": left, **watch.peaks}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
