"""Opens a state in a fresh process and says how long it took: `python -m bench.open_child PATH ROWS PROBES`.

The clock starts once Python and the package are loaded: what is measured is the opening, and the first probe.
"""

from __future__ import annotations

import sys
import time

from bench.states import HOUR_US, SEED
from bench.workload import covering, make_probes
from lsmstate import StateStore


def main(path: str, rows: int, probes: int) -> None:
    """Prints milliseconds and matched rows."""
    asked = make_probes(max(probes, 1), state_rows=rows, key_kind="int", ts0=0, ts1=HOUR_US, seed=SEED)
    lower, upper = covering(0, HOUR_US)
    begun = time.perf_counter()
    store = StateStore.open(path)
    found = 0
    if probes:
        found = sum(batch.num_rows for batch in store.probe(0, asked, lower, upper))
    took = time.perf_counter() - begun
    sys.stdout.write(f"{took * 1e3} {found}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
