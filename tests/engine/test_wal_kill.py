"""A writer with a log, killed with -9 at any moment, loses no row that it has acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from tests.support.sizes import size

KILLS = size("wal_kills")


def test_killed_writers_lose_no_acknowledged_row(disk_path: Path, figures) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    command = [sys.executable, "-m", "tests.support.wal_kill_loop", str(disk_path / "state"), str(KILLS), str(seed)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
    _, kills, _, appends = done.stdout.split()
    figures.add("kills survived with a write-ahead log", int(kills))
    figures.add("appends acknowledged before kills", int(appends))
