"""The join on Spark beside Spark's own: same source, same rows, same sink, interleaved, each in a fresh JVM."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from bench.spark_runs import Batch, ratio, rounds, run, write_input

ROUNDS = 3
ENGINES = ("lsmstate", "rocksdb", "ceiling", "hdfs")


def flatness(batches: list[Batch]) -> float:
    """Rows/s of the last batches over those of the first warm ones."""
    warm, last = batches[3:6], batches[-4:]
    return statistics.median(b.rows_per_s for b in last) / statistics.median(b.rows_per_s for b in warm)


@pytest.mark.parametrize(("master", "partitions"), [("local[2]", 2), ("local[1]", 1)])
def test_large_batches(master: str, partitions: int, tmp_path: Path) -> None:
    write_input(tmp_path / "rows", rows=400_000, batches=12)
    told = rounds(ENGINES, ROUNDS, master, partitions, tmp_path / "rows", tmp_path / "work", warm=2)
    found = {other: ratio(told, "lsmstate", other) for other in ENGINES[1:]}
    print(f"\n{master}, 400k rows a batch, up to 4.8M state rows")
    for other, (middle, low, high) in found.items():
        print(f"lsmstate is {middle:.2f} times {other} ({low:.2f} to {high:.2f})")
    flat = statistics.median(flatness(round_["lsmstate"]) for round_ in told)
    print(f"last batches at {flat:.2f} of the first warm ones")
    assert found["rocksdb"][0] >= 10
    assert found["hdfs"][0] >= 4
    assert found["ceiling"][0] >= 0.75
    assert flat >= 0.85


def test_left_join(tmp_path: Path) -> None:
    write_input(tmp_path / "rows", rows=400_000, batches=12, alone=0.5)
    engines, more = ("lsmstate", "rocksdb", "hdfs"), (20, 60, "left")
    told = rounds(engines, ROUNDS, "local[2]", 2, tmp_path / "rows", tmp_path / "work", 2, *more)
    found = {other: ratio(told, "lsmstate", other) for other in engines[1:]}
    print("\nleft join, 400k rows a batch, every second left row alone, up to 3.6M state rows")
    for other, (middle, low, high) in found.items():
        print(f"lsmstate is {middle:.2f} times {other} ({low:.2f} to {high:.2f})")
    assert found["rocksdb"][0] >= 8
    assert found["hdfs"][0] >= 3


def test_three_hundred_batches_under_a_turning_watermark(tmp_path: Path) -> None:
    write_input(tmp_path / "rows", rows=50_000, batches=300)
    batches = run("lsmstate", "local[2]", 2, tmp_path / "rows", tmp_path / "work", 0, 300, 60)
    early = statistics.median(b.ms for b in batches[50:100])
    last = statistics.median(b.ms for b in batches[-50:])
    warm = sorted(b.ms for b in batches[50:])
    tail = warm[int(len(warm) * 0.99)] / statistics.median(warm)
    print(f"\n300 batches of 50k rows: the last fifty {last:.0f} ms, {last / early:.2f} of batches 50 to 100")
    busy, runs = statistics.median(b.busy_ms or 0 for b in batches[50:]), max(b.runs for b in batches)
    print(f"99th percentile {tail:.2f} of the median, most {warm[-1]:.0f} ms", end="")
    print(f"; our slowest task {busy:.0f} ms; at most {runs} runs")
    print(f"state {batches[99].state >> 20} MiB after 100 batches, {batches[-1].state >> 20} MiB at the end")
    assert last <= 1.2 * early
    assert tail <= 2
    assert runs <= 32


def test_small_batches(tmp_path: Path) -> None:
    write_input(tmp_path / "rows", rows=2_000, batches=50)
    told = rounds(("lsmstate", "rocksdb", "hdfs"), ROUNDS, "local[2]", 2, tmp_path / "rows", tmp_path / "work", warm=1)
    ratios, ours, busy = [], [], []
    for round_ in told:
        middle = {engine: statistics.median(b.ms for b in batches[20:]) for engine, batches in round_.items()}
        ratios.append(middle["lsmstate"] / min(middle["rocksdb"], middle["hdfs"]))
        ours.append(middle["lsmstate"])
        busy.append(statistics.median(b.busy_ms or 0 for b in round_["lsmstate"][20:]))
        print(f"\nms a batch of 2,000 rows: {middle}")
    print(f"a batch takes {statistics.median(ratios):.2f} times that of Spark's better store ({ratios})")
    print(f"{statistics.median(ours):.0f} ms, of which our slowest task works {statistics.median(busy):.1f} ms")
    assert statistics.median(ratios) <= 1.2
