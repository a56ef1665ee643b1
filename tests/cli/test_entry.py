"""What all commands share: errors as one line, exit codes, pipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lsmstate
from lsmstate.cli import entry, inspect
from tests.cli.conftest import Run


def test_version_is_that_of_the_package_and_tells_how_it_was_installed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--version").out == f"lsmstate {lsmstate.__version__} (compiled loops)\n"
    monkeypatch.setattr(entry, "kernel", None)
    assert run("--version").out.startswith(f"lsmstate {lsmstate.__version__} (numpy loops: install a C compiler")


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


WAYS = {
    "module": "runpy.run_module('lsmstate', run_name='__main__')",
    "script": "from lsmstate.cli import main; sys.exit(main())",
}
INTERRUPTED_IMPORT = """
import runpy, sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("module", ["numpy", "pyarrow", "rich", "lsmstate.engine", "lsmstate.cli.entry"])
def test_interrupt_while_modules_are_imported_is_quiet(way: str, module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT + WAYS[way], module]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


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


@pytest.mark.parametrize("arguments", [["inspect", "--json"], ["verify"]])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_leave_the_exit_code_and_no_traceback(built: Path, arguments: list[str], closed: str) -> None:
    script = f'"$@" {closed}'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "lsmstate", *arguments]
    for path, code in ((built, 0), (built / "nothing", 2)):
        done = subprocess.run([*command, str(path)], capture_output=True, text=True)
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") == (1 if code and "2>" not in closed else 0)


def test_question_to_a_closed_input_is_exit_code_2(state: Path) -> None:
    command = ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-m", "lsmstate", "doctor", str(state), "--recover", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Nobody is there to ask" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["inspect", "a", "{}"], ["{}"], ["inspect", "a", "--{}"], ["dump", "f", "--rows", "{}"]]
)
def test_arguments_in_complaints_do_not_reach_the_terminal(run: Run, arguments: list[str]) -> None:
    hostile = "\x1b]0;x\x07\x9b31m\u202e\r"
    result = run(*(argument.format(hostile) for argument in arguments))
    assert result.code == 2
    assert "\\x1b" in result.err
    assert all(char.isprintable() or char == "\n" for char in result.err)


def test_count_that_is_no_number_is_told_in_words(run: Run) -> None:
    assert "'abc' is no count; it is a whole number of rows, such as 10" in run("dump", "f", "--rows", "abc").err


def test_output_without_unicode_shows_numbers_instead(built: Path) -> None:
    command = [sys.executable, "-m", "lsmstate", "inspect", str(built)]
    done = subprocess.run(command, capture_output=True, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
