"""Random inputs for joins: two lists of files, with all that makes joins hard, from a seed that is printed."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START_S = 1_700_000_000
_US = 1_000_000
TIME = pa.timestamp("us", tz="UTC")


@dataclass
class Workload:
    """Two inputs cut into files, and the join over them. Rows with v = 0 are filtered away by the query."""

    seed: int
    keys: list[tuple[str, str]]
    key_types: list[pa.DataType]
    lower_s: int
    upper_s: int
    delays_s: tuple[int, int]
    files: tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]]]
    restart_after: int  # files of each side before the restart
    partitions: int
    how: str = "inner"
    written: list[int] = field(default_factory=lambda: [0, 0])

    def schema(self, side: int) -> pa.Schema:
        """The columns of a side."""
        keys = [(pair[side], kind) for pair, kind in zip(self.keys, self.key_types, strict=True)]
        return pa.schema([*keys, ("ts", TIME), ("v", pa.int64()), (("lv", "rv")[side], pa.string())])

    def ddl(self, side: int) -> str:
        """The same for Spark."""
        told = {pa.int64(): "bigint", pa.int32(): "int", pa.string(): "string", TIME: "timestamp"}
        return ", ".join(f"{f.name} {told[f.type]}" for f in self.schema(side))

    def write(self, directory: Path, upto: int) -> None:
        """Adds files to both input directories, so that each has `upto` of them."""
        for side, name in enumerate(("left", "right")):
            (directory / name).mkdir(parents=True, exist_ok=True)
            for number in range(self.written[side], min(upto, len(self.files[side]))):
                rows = pa.Table.from_pylist(self.files[side][number], schema=self.schema(side))
                path = directory / name / f"{number:05d}.parquet"
                pq.write_table(rows, path.with_suffix(".tmp"))
                os.utime(path.with_suffix(".tmp"), (START_S + number, START_S + number))
                path.with_suffix(".tmp").rename(path)
                self.written[side] = number + 1


def random_workload(seed: int, how: str = "inner") -> Workload:
    """A workload; equal for equal seeds. Where Spark's own join is at odds with SQL, there are no NULLs: in outer joins
    it keeps rows without a time for ever, and in full ones it takes NULL keys for equal."""
    rng = random.Random(seed)
    kinds = rng.choice([[pa.int64()], [pa.string()], [pa.int64(), pa.string()], [pa.int32()]])
    same = rng.random() < 0.5
    keys = [(f"k{n}", f"k{n}" if same else f"r{n}") for n in range(len(kinds))]
    lower = rng.randint(-30, 10)
    upper = lower + rng.choice([0, rng.randint(0, 40)])
    batches = rng.randint(3, 6)
    step = rng.randint(2, 20)
    domain = rng.choice([1, 3, 30])
    null_share, late_share = rng.choice([0.0, 0.1]), rng.choice([0.0, 0.15])
    sides: tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]]] = ([], [])
    for side in (0, 1):
        silent = rng.random() < 0.2
        for number in range(batches if not silent else rng.randint(1, batches)):
            rows = []
            for _ in range(rng.choice([0, 1, 5, 30, 60])):
                second = number * step + rng.randint(-step, step)
                if rng.random() < late_share:
                    second -= rng.randint(1, 6) * step
                row: dict[str, Any] = {
                    pair[side]: None if rng.random() < null_share and how != "full" else _key(rng, kind, domain)
                    for pair, kind in zip(keys, kinds, strict=True)
                }
                row["ts"] = (START_S + second) * _US + rng.choice([0, 0, rng.randint(0, _US - 1)])
                if rng.random() < null_share / 5 and how == "inner":
                    row["ts"] = None
                row["v"] = rng.randint(0, 5)
                row[("lv", "rv")[side]] = f"{side}-{number}-{rng.randint(0, 9)}"
                rows += [row] * rng.choice([1, 1, 1, 2])
            if rng.random() < 0.15:
                rows = [{**row, "v": 0} for row in rows]  # a batch wholly filtered away
            sides[side].append(rows)
    delays = (rng.randint(0, 2 * step), rng.randint(0, 2 * step))
    halves = rng.randint(1, batches), rng.randint(1, 3)
    work = reminded(Workload(seed, keys, kinds, lower, upper, delays, sides, *halves, how))
    return work if how == "inner" else ended(work)


def reminded(work: Workload) -> Workload:
    """The same with a row of each side after the restart that is as new as those before: Spark forgets by it how far
    each side has been, and then others would be late."""
    for side, files in enumerate(work.files):
        files.extend([[] for _ in range(work.restart_after + 1 - len(files))])
        before = [row["ts"] for file in files[: work.restart_after] for row in file if row["v"] and row["ts"]]
        if before:
            files[work.restart_after].append(lone_row(work, side, max(before), "back"))
    return work


def ended(work: Workload) -> Workload:
    """The same with a last file a side, so far ahead that the watermark decides all rows before."""
    last = max(map(len, work.files))
    for side, files in enumerate(work.files):
        files.extend([[] for _ in range(last - len(files))])
        files.append([lone_row(work, side, (START_S + 1_000_000) * _US, "far")])
    return work


def lone_row(work: Workload, side: int, ts: int, word: str) -> dict[str, Any]:
    """A row with a key that no other has but those of the same word."""
    pairs = zip(work.keys, work.key_types, strict=True)
    keys = {pair[side]: word if pa.types.is_string(kind) else {"back": 98, "far": 99}[word] for pair, kind in pairs}
    return {**keys, "ts": ts, "v": 1, ("lv", "rv")[side]: word}


def calm_workload(seed: int, batches: int, rows: int = 200, how: str = "inner", grain_us: int = 1) -> Workload:
    """A workload in which no row is late: the batch join of all rows is what must come out. Times are multiples of the
    grain."""
    rng = random.Random(seed)
    keys, kinds = [("k", "k"), ("n", "m")], [pa.string(), pa.int64()]
    sides: tuple[list[list[dict[str, Any]]], list[list[dict[str, Any]]]] = ([], [])
    for side in (0, 1):
        for number in range(batches):
            file = []
            for row in range(rows):
                ts = (START_S + number * 10 + rng.randint(-30, 30)) * _US + rng.randint(0, 3)
                ts = ts // grain_us * grain_us
                key = {"k": _key(rng, kinds[0], 20), ("n", "m")[side]: rng.choice([None, 1, 2])}
                file.append({**key, "ts": ts, "v": 1, ("lv", "rv")[side]: f"{number}-{row % 50}"})
            sides[side].append(file)
    work = Workload(seed, keys, kinds, -20, 20, (3600, 3600), sides, batches, 2, how)
    return work if how == "inner" else ended(work)


def _key(rng: random.Random, kind: pa.DataType, domain: int) -> int | str:
    number = rng.randrange(domain)
    return f"key-{number}" if pa.types.is_string(kind) else number - domain // 2
