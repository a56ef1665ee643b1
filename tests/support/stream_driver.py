"""A driver of its own: `python -m tests.support.stream_driver HOME SEED BATCHES MASTER HOW` joins a calm workload.

The input files are there already, and it goes on till they are read. A master that begins with `connect:` is reached
through Spark Connect.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.spark_session import connect_session, make_session
from tests.support.stream_run import drain, our_join
from tests.support.workloads import calm_workload


def main(home: Path, seed: int, batches: int, master: str, how: str) -> None:
    """Joins till the sources are empty."""
    if master.startswith("connect:"):
        session = connect_session(master.removeprefix("connect:"))
    else:
        session = make_session(master)
    drain(our_join(session, calm_workload(seed, batches, how=how), home), home)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
