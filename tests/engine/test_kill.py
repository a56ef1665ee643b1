"""A writer killed with -9 at any moment leaves the state at an epoch that it acknowledged, or at the next one."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sizes import size

KILLS = size("kills")
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_writers_lose_no_acknowledged_epoch(part: int, disk_path: Path, figures) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    command = [
        sys.executable,
        "-m",
        "tests.support.kill_loop",
        str(disk_path / "state"),
        str(KILLS // PARTS),
        str(seed),
    ]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
    _, kills, _, epochs = done.stdout.split()
    assert int(epochs) > 0
    figures.add("kills survived", int(kills))
    figures.add("epochs acknowledged before kills", int(epochs))
