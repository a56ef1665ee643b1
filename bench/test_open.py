"""Opening a state costs what its number of files costs, not what its rows do; the first probe reads what it touches."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from bench.states import build

REPEATS = 9


def opened(path: Path, rows: int, probes: int) -> tuple[float, int]:
    """Milliseconds to open in a fresh process, and matched rows."""
    command = [sys.executable, "-m", "bench.open_child", str(path), str(rows), str(probes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    took, found = done.stdout.split()
    return float(took), int(found)


def test_open_and_first_probe(tmp_path: Path) -> None:
    build(tmp_path / "small", 1_000_000, 20, "int").close()
    build(tmp_path / "large", 10_000_000, 200, "int").close()
    times: dict[str, list[float]] = {"small": [], "large": [], "bare": []}
    for _ in range(REPEATS):
        took, found = opened(tmp_path / "small", 1_000_000, 1000)
        assert found == 1000
        times["small"].append(took)
        took, found = opened(tmp_path / "large", 10_000_000, 1000)
        assert found == 1000
        times["large"].append(took)
        times["bare"].append(opened(tmp_path / "large", 10_000_000, 0)[0])
    small, large, bare = (statistics.median(times[name]) for name in ("small", "large", "bare"))
    print(f"\nopen + first probe of 1,000 keys: 1M rows in 20 files {small:.1f} ms, 10M in 200 {large:.1f} ms", end="")
    print(f" ({large / small:.2f}x; {min(times['large']):.1f}..{max(times['large']):.1f}); open alone {bare:.1f} ms")
    assert large <= 3 * small
    assert large < 60
    assert bare < 10
