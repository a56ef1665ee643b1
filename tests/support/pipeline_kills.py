"""Kills a pipeline with -9 again and again over one input: `python -m tests.support.pipeline_kills DIR KIND KILLS
SEED`.

Each life is a forked process that restores the job from its catalog and goes on; the kill comes at a random moment,
also in the middle of the recovery. A life may read only a share of the input, so that the job cannot end before its
last one. The caller looks at what the sink holds.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any

import pyarrow as pa

from lsmstate.checkpoint import DatabaseSink, FileSink, TableSource
from tests.support.pipeline_job import pipeline, rows

COUNT = 6000  # rows of a source
LONGEST_S = 0.25  # from the fork to the kill


class Gated(TableSource):
    """Gives a share of its rows, then nothing; it has not ended."""

    def __init__(self, table: pa.Table, share: int | None) -> None:
        super().__init__(table, batch_rows=20)
        self._share, self._given = share, 0

    def read(self) -> pa.RecordBatch | None:
        if self._share is not None and self._given >= self._share:
            return None
        batch = super().read()
        self._given += 0 if batch is None else batch.num_rows
        return batch


def tables(seed: int) -> tuple[pa.Table, pa.Table]:
    """The input."""
    return rows(seed, COUNT), rows(seed + 1, COUNT)


def sink_of(root: str, kind: str) -> Any:
    """Files, but for full joins: a database."""
    return DatabaseSink(f"sqlite:///{root}/out.db", "joined") if kind == "full" else FileSink(f"{root}/out")


def live(root: str, kind: str, seed: int, share: int | None, parallelism: int) -> int:
    """One life, to its end."""
    left, right = tables(seed)
    job = pipeline(
        root,
        kind,
        left,
        right,
        sources=lambda name, table: Gated(table, share),
        sink=sink_of(root, kind),
        parallelism=parallelism,
        interval_s=0.01,
    )
    return job.run()


def main(root: str, kind: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    share = COUNT // (kills + 1)
    done = 0
    while done < kills:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                live(root, kind, seed, share, 1)
                code = 0  # cannot be: its input has not ended
            finally:
                sys.stderr.flush()
                os._exit(code)
        time.sleep(rng.uniform(0, LONGEST_S))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"a life ended by itself, before its kill, with {os.waitstatus_to_exitcode(status)}")
        done += 1
    print("killed", done)
    print("ended at epoch", live(root, kind, seed, None, 1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
