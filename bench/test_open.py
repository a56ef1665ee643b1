"""Opening a state costs what its number of files costs, not what its rows do; the first probe reads what it touches."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from bench.states import build

REPEATS = 9
MINUTES = 5  # of the hour that the state holds: what a join looks back on
SMALL, LARGE = ("small", 1_000_000, 20), ("large", 10_000_000, 200)


def opened(path: Path, rows: int, probes: int, minutes: int) -> tuple[float, int]:
    """Milliseconds to open in a fresh process, and matched rows."""
    command = [sys.executable, "-m", "bench.open_child", str(path), str(rows), str(probes), str(minutes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    took, found = done.stdout.split()
    return float(took), int(found)


def test_open_and_first_probe(tmp_path: Path) -> None:
    for name, rows, files in (SMALL, LARGE):
        build(tmp_path / name, rows, files, "int").close()
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(REPEATS):
        for name, rows, _files in (SMALL, LARGE):
            for minutes in (MINUTES, 60):
                took, found = opened(tmp_path / name, rows, 1000, minutes)
                assert found == 1000
                times.setdefault((name, minutes), []).append(took)
        times.setdefault(("bare", 0), []).append(opened(tmp_path / "large", LARGE[1], 0, MINUTES)[0])
    middle = {key: statistics.median(values) for key, values in times.items()}
    print(f"\nopen 10M rows in 200 files: {middle['bare', 0]:.1f} ms")
    for minutes, what in ((MINUTES, "looking back on 5 of 60 minutes"), (60, "looking back on all")):
        small, large = middle["small", minutes], middle["large", minutes]
        print(
            f"and probe 1,000 keys, {what}: {large:.1f} ms, {large / small:.2f} times 1M in 20 files ({small:.1f} ms)"
        )
    assert middle["bare", 0] < 10
    assert middle["large", 60] < 60  # the hard case: every file is touched
    assert middle["large", 60] <= 3 * middle["small", 60]
