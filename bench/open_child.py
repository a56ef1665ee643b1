"""Opens a state in a fresh process and says how long it took: `python -m bench.open_child PATH ROWS PROBES MINUTES`.

The clock starts once Python and the package are loaded: what is measured is the opening, and the first probe: keys of
rows of the last MINUTES, asked for at the end of the hour with an interval of as many minutes.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

from bench.states import HOUR_US, SEED
from bench.workload import TIME, keys_of
from lsmstate import StateStore


def main(path: str, rows: int, probes: int, minutes: int) -> None:
    """Prints milliseconds and matched rows."""
    first = rows - rows * minutes // 60
    ids = np.random.default_rng(SEED).integers(first, rows, max(probes, 1))
    now = pa.array(np.full(len(ids), HOUR_US)).cast(TIME)
    asked = pa.RecordBatch.from_arrays([keys_of(ids, "int"), now], names=["key", "ts"])
    lower, upper = -(minutes + 1) * 60_000_000, 0
    begun = time.perf_counter()
    store = StateStore.open(path)
    found = 0
    if probes:
        found = sum(batch.num_rows for batch in store.probe(0, asked, lower, upper))
    took = time.perf_counter() - begun
    sys.stdout.write(f"{took * 1e3} {found}\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
