"""A hot key of 1,000,000 by 1,000 rows under a memory limit of 256 MiB: a thousand million pairs, all consumed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.hot_child import LEFT, RIGHT

LIMIT = 256 << 20


def test_hot_key_streams_out_in_bounded_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.hot_child", str(tmp_path / "state"), str(LIMIT)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    print(
        f"\n{told['pairs']:,} pairs in {told['seconds']:.1f} s, batches of at most {told['largest'] >> 10} KiB", end=""
    )
    print(f"; anonymous memory at most {told['join'] >> 20} MiB")
    assert told["pairs"] == LEFT * RIGHT
    assert told["left"] == RIGHT * (LEFT * (LEFT - 1) // 2)
    assert told["right"] == LEFT * (RIGHT * (RIGHT - 1) // 2)
    assert told["alone"] == 0
    assert told["join"] <= LIMIT + (200 << 20)
