"""`lsmstate demo`: once in full, as a user would run it; and where it puts its directories."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from iopool import LocalFileSystem
from lsmstate.cli import demo, demo_join, main
from lsmstate.cli.demo import new_run
from lsmstate.errors import NotAStateError
from tests.cli.conftest import Run


def test_demo_is_right_and_its_next_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run([sys.executable, "-m", "lsmstate", "demo"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "the same pairs, one by one" in done.stdout
    assert done.stdout.count("OK") == 4
    assert "WRONG" not in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.strip()[:3] in {"1  ", "12 "}]) == 2
    monkeypatch.chdir(tmp_path)
    _, _, after = done.stdout.partition("Look into it:\n")
    commands = [shlex.split(line) for line in after.splitlines() if line.startswith("  lsmstate ")]
    assert [command[1] for command in commands] == ["inspect", "verify", "dump", "inspect"]
    for command in commands:
        assert main(command[1:]) == 0


def test_wrong_result_is_exit_code_1(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (demo, demo_join):
        monkeypatch.setattr(module, "EPOCHS", 2, raising=False)
    monkeypatch.setattr(demo, "_PAST", 1)
    real = demo_join.Join.found_pairs
    monkeypatch.setattr(demo_join.Join, "found_pairs", lambda join: real(join)[1:])
    result = run("demo", tmp_path / "demo")
    assert result.code == 1
    assert "WRONG" in result.out


def test_each_run_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    fs, where = LocalFileSystem(), tmp_path / "demo"
    assert new_run(fs, str(where)) == f"{where}/run-1"
    (where / "run-1").mkdir(parents=True)
    (where / "run-9").mkdir()
    (where / "other").touch()
    assert new_run(fs, str(where)) == f"{where}/run-10"


def test_demo_refuses_a_state_and_what_is_no_directory(run: Run, built: Path, tmp_path: Path) -> None:
    assert run("demo", built).code == 2
    (tmp_path / "file").touch()
    with pytest.raises(NotAStateError, match="not a directory"):
        new_run(LocalFileSystem(), str(tmp_path / "file"))
