"""What all commands share: errors as one line, exit codes, pipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lsmstate
from lsmstate.cli import inspect
from tests.cli.conftest import Run


def test_version_is_that_of_the_package(run: Run) -> None:
    result = run("--version")
    assert (result.code, result.out) == (0, f"lsmstate {lsmstate.__version__}\n")


def test_help_tells_commands_and_exit_codes(run: Run) -> None:
    result = run("--help")
    assert result.code == 0
    for word in (
        "demo",
        "dump",
        "inspect",
        "verify",
        "exit codes:",
        "\n  0 ",
        "\n  1 ",
        "\n  2 ",
        "\n  130 ",
        "\n  141 ",
    ):
        assert word in result.out


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["dump"], ["dump", "f", "--rows", "-1"], ["verify", "a", "b"]])
def test_misuse_is_exit_code_2_with_usage(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert "usage: lsmstate" in result.err


@pytest.mark.parametrize("command", ["dump", "inspect", "verify"])
def test_missing_path_is_one_line_and_exit_code_2(run: Run, tmp_path: Path, command: str) -> None:
    result = run(command, tmp_path / "nothing")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("lsmstate: ")
    assert result.err.count("\n") == 1
    assert str(tmp_path / "nothing") in result.err


def test_newline_and_escapes_in_a_path_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    result = run("inspect", tmp_path / "a\n\x1b[31mb")
    assert result.err.count("\n") == 1
    assert "\\n\\x1b[31mb" in result.err


def test_interrupt_is_exit_code_130_without_a_traceback(run: Run, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect, "describe", interrupted)
    result = run("inspect", built)
    assert (result.code, result.out, result.err) == (130, "", "")


def test_module_runs_as_the_command(built: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "lsmstate", "verify", built], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "OK" in done.stdout


@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "--json"], ["verify"]])
def test_reader_that_goes_away_is_not_an_error_message(built: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "lsmstate", *arguments, str(built)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_output_without_unicode_shows_numbers_instead(built: Path) -> None:
    command = [sys.executable, "-m", "lsmstate", "inspect", str(built)]
    done = subprocess.run(command, capture_output=True, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
