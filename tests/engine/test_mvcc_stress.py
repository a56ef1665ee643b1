"""MVCC under stress and a soak in one: views in threads are always one moment, and nothing that a process holds grows.

What is done is told in `tests.support.soak` and `tests.support.transfers`; how long it takes, in the table of sizes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import Figures
from tests.support.sizes import size
from tests.support.soak import LEAST, Measured, grown

ROOT = Path(__file__).parents[2]
READERS = 4


def test_views_are_one_moment_and_memory_descriptors_threads_and_mappings_stay_flat(
    tmp_path: Path, figures: Figures
) -> None:
    seconds = size("soak_seconds")
    command = [sys.executable, "-m", "tests.support.soak", str(tmp_path / "state"), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * seconds + 600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["handles"] >= LEAST
    assert told["epochs"] > told["handles"]
    assert told["reads"] > READERS * told["handles"]
    figures.add("soak: {} s, {} epochs, {} reads", seconds, told["epochs"], told["reads"])
    figures.add("soak: {} handles opened and closed, then {} descriptors", told["handles"], told["descriptors"])
    figures.add("soak: {} threads, {} MiB resident", told["threads"], told["resident_bytes"] >> 20)


def test_growth_of_any_one_is_found() -> None:
    flat = [Measured(200 << 20, 20, 2, 0)] * 12
    assert grown(flat) == []
    for name, more in zip(Measured._fields, (60 << 20, 1, 1, 1), strict=True):
        leaking = [m._replace(**{name: getattr(m, name) + n * more}) for n, m in enumerate(flat)]
        (found,) = grown(leaking)
        assert found.startswith(f"{name}: ")
