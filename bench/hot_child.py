"""One hot key of a million left rows and a thousand right rows, under a memory limit, in a process of its own:
`python -m bench.hot_child PATH LIMIT`. Every pair is consumed. Prints pairs, sums of row numbers, seconds, and the
highest anonymous memory.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.memory_child import Watch
from iopool import MemoryController
from lsmstate import Side
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.join import IntervalJoin

LEFT, RIGHT, BATCH = 1_000_000, 1_000, 100_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("number", pa.int64())])


def rows(first: int, count: int) -> pa.RecordBatch:
    """Rows of the key with numbers from `first` on."""
    numbers = np.arange(first, first + count)
    return pa.RecordBatch.from_arrays(
        [pa.array(np.full(count, 7)), pa.array(numbers), pa.array(numbers)], schema=SCHEMA
    )


def main(path: str, limit: int) -> None:
    """Joins them."""
    watch = Watch()
    watch.stage = "join"
    sides = [Side(name, SCHEMA, ["k"], "ts") for name in ("left", "right")]
    join = IntervalJoin(*sides, lower=timedelta(hours=-1), upper=timedelta(hours=1), how="full")
    join.on_start(OperatorContext(path, memory=MemoryController(limit // 2, limit)))
    for first in range(0, LEFT, BATCH):
        assert list(join.process_batch(0, rows(first, BATCH))) == []
    join.handle_checkpoint(CheckpointBarrier(1))
    join.commit(1)
    begun = time.perf_counter()
    pairs = left = right = largest = 0
    for batch in join.process_batch(1, rows(0, RIGHT)):
        pairs += batch.num_rows
        left += pc.sum(batch.column("number")).as_py()
        right += pc.sum(batch.column("number_right")).as_py()
        largest = max(largest, batch.nbytes)
    seconds = time.perf_counter() - begun
    alone = sum(batch.num_rows for batch in join.process_watermark(1 << 50))
    join.on_close()
    watch.end()
    told = {"pairs": pairs, "left": left, "right": right, "alone": alone, "seconds": seconds, "largest": largest}
    sys.stdout.write(json.dumps({**told, **watch.peaks}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
