"""Pipelines that are killed with -9 again and again over one input, and brought back from their catalog each time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.conftest import Figures
from tests.support.pipeline_job import expected, written
from tests.support.pipeline_kills import tables
from tests.support.sizes import size


def kill(root: Path, kind: str, kills: int, seed: int, figures: Figures) -> None:
    kills *= size("pipeline_kills")
    command = [sys.executable, "-m", "tests.support.pipeline_kills", str(root), kind, str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    assert f"killed {kills}" in done.stdout
    figures.add("pipelines killed and restored", kills)


def test_a_left_join_into_files_survives_200_kills(disk_path: Path, figures: Figures) -> None:
    kill(disk_path, "left", 200, 101, figures)
    assert written(disk_path / "out") == expected("left", *tables(101))


def test_an_instant_join_into_files_survives_50_kills(disk_path: Path, figures: Figures) -> None:
    kill(disk_path, "instant", 50, 301, figures)
    assert written(disk_path / "out") == expected("instant", *tables(301))


def test_a_full_join_into_a_database_survives_50_kills(disk_path: Path, figures: Figures) -> None:
    kill(disk_path, "full", 50, 401, figures)
    with sqlite3.connect(disk_path / "out.db") as db:
        found = db.execute("select k, n, n_right from joined").fetchall()
    wanted = [(row[0], row[2], row[4]) for row in expected("full", *tables(401))]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
