"""Runs of streaming joins side by side: the input that all engines share, and rounds in which each has its turn."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_START_US = 1_700_000_000_000_000
_STEP_US = 10_000_000  # of event time, a batch
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Batch:
    """One micro-batch."""

    ms: float
    rows: int
    busy_ms: float | None = None
    runs: int = 0  # of ours: the most of a side in a partition
    state: int = 0  # of ours: bytes of all partitions

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.ms * 1e3


def write_input(directory: Path, rows: int, batches: int, alone: float = 0.0) -> None:
    """Files of both sides: half of the rows of a batch each, every left row with one match in the same batch, but for a
    share that is alone."""
    rng = np.random.default_rng(5)
    each = rows // 2
    for number in range(batches):
        for side, (amount, tag) in (("left", ("amount", "tag")), ("right", ("price", "label"))):
            keys = rng.permutation(each) + number * each
            if side == "right":
                keys = np.where(keys - number * each < alone * each, -keys - 1, keys)
            ts = _START_US + number * _STEP_US + rng.integers(0, _STEP_US, each)
            tags = pa.array([f"tag-{n:04d}" for n in range(1000)]).take(pa.array(rng.integers(0, 1000, each)))
            columns = {
                "key": pa.array(keys),
                "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")),
                amount: pa.array(rng.random(each)),
                tag: tags,
            }
            (directory / side).mkdir(parents=True, exist_ok=True)
            path = directory / side / f"{number:05d}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (number, number))


def run(engine: str, master: str, partitions: int, rows: Path, work: Path, warm: int, *more: int | str) -> list[Batch]:
    """The batches of one engine, in a process of its own; `warm` and the rest as the child has it."""
    shutil.rmtree(work, ignore_errors=True)
    os.sync()  # what the engine before has left to be written must not be written in this one's time
    arguments = [engine, master, partitions, rows, work, warm, *more]
    command = [sys.executable, "-m", "bench.spark_child", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    shutil.rmtree(work, ignore_errors=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return [Batch(**told) for told in json.loads(done.stdout.splitlines()[-1])]


def rounds(
    engines: Sequence[str],
    count: int,
    master: str,
    partitions: int,
    rows: Path,
    work: Path,
    warm: int,
    *more: int | str,
) -> list[dict[str, list[Batch]]]:
    """Each engine once a round, in an order that turns."""
    told = []
    for number in range(count):
        turn = [*engines[number % len(engines) :], *engines[: number % len(engines)]]
        told.append({engine: run(engine, master, partitions, rows, work, warm, *more) for engine in turn})
        line = ", ".join(f"{e} {_last(told[-1][e]):,.0f}" for e in engines)
        sys.stdout.write(f"\nround {number + 1}, rows/s of the last batches: {line}")
        sys.stdout.flush()
    return told


def _last(batches: Sequence[Batch]) -> float:
    return statistics.median(batch.rows_per_s for batch in batches[-4:])


def ratio(told: Sequence[dict[str, list[Batch]]], one: str, other: str) -> tuple[float, float, float]:
    """The median over the rounds of how much faster one is in its last batches than the other; and the extremes."""
    values = [_last(round_[one]) / _last(round_[other]) for round_ in told]
    return statistics.median(values), min(values), max(values)
