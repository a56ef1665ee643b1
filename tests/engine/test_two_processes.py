"""Two real processes on one state, each stopped before every file operation of what it does.

Whichever is held and wherever: one wins, the other is told, nothing that was acknowledged is lost, no epoch is half
there, and a third process can go on. The pairs are driven by `tests.support.held_pairs`, which says more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Figures
from tests.support.held_process import ACTS
from tests.support.sizes import size

ROOT = Path(__file__).parents[2]
LEAST_STEPS = 8


def stride(first: str, second: str) -> int:
    """Of two that only commit all pairs are tried, in every run."""
    if first == second == "commit":
        return 1
    return size("held_every_compaction" if "compact" in (first, second) else "held_every")


def run_pairs(home: Path, first: str, second: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.support.held_pairs", str(home), first, second, str(stride(first, second))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    counted: dict[str, int] = json.loads(done.stdout)
    assert counted["steps"] >= LEAST_STEPS
    assert counted["pairs"] >= counted["steps"]
    return counted


@pytest.mark.parametrize("second", [*ACTS, "life"])
@pytest.mark.parametrize("first", ACTS)
def test_of_two_held_processes_one_wins_and_nothing_acknowledged_is_lost(
    first: str, second: str, tmp_path: Path, figures: Figures
) -> None:
    counted = run_pairs(tmp_path, first, second)
    assert counted["fenced"] > 0, "no loser was ever told"
    assert counted["both"] > 0, "they never came one after the other"
    figures.add("two processes held at a pair of steps: {}, a loser told in {}", counted["pairs"], counted["fenced"])


def test_two_attempts_at_one_epoch_are_both_whole_wherever_they_are_held(tmp_path: Path, figures: Figures) -> None:
    counted = run_pairs(tmp_path, "candidate", "candidate")
    figures.add("two attempts at one epoch held at a pair of steps", counted["pairs"])
