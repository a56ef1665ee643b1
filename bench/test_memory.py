"""A state of more than 4 GiB under a memory limit of 256 MiB: appended to, probed, compacted and retired."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LIMIT = 256 << 20
ROWS = 56_000_000


def test_anonymous_memory_stays_below_the_limit_plus_200_mib(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.memory_child", str(tmp_path / "state"), str(ROWS), str(LIMIT)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    size, left = told.pop("state_bytes"), told.pop("rows_left")
    print(f"\nstate of {size / 2**30:.2f} GiB, limit 256 MiB; anonymous memory at most, in MiB:", end=" ")
    print(", ".join(f"{stage} {peak >> 20}" for stage, peak in told.items()))
    assert size >= 4 << 30
    assert left == 0
    assert max(told.values()) <= LIMIT + (200 << 20)
