"""`lsmstate demo`: once in full, as a user would run it; its exit codes, its screen, and where it puts its files."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from iopool import LocalFileSystem
from lsmstate.cli.demo import new_run
from lsmstate.errors import NotAStateError
from lsmstate.spark import demo as job_module
from lsmstate.spark.demo import Verdict
from tests.cli.conftest import Run
from tests.support.demo_job import FakeJob

DEMO = [sys.executable, "-m", "lsmstate", "demo"]


@pytest.mark.spark
def test_demo_is_right_and_its_next_commands_work(tmp_path: Path) -> None:
    done = subprocess.run([*DEMO, "--seconds", "3"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    (told,) = re.findall(r"^OK: the result equals the batch join: ([\d,]+) rows$", done.stdout, re.MULTILINE)
    home = tmp_path / "state/demo/run-1"
    assert int(told.replace(",", "")) == rows_in(home / "joined") == pairs_in(home)
    last = re.findall(r"^ +\d+ +[\d,]+ +([\d,]+) .*\nSpark joins the same", done.stdout, re.MULTILINE)
    assert last == [told], done.stdout
    _, _, after = done.stdout.partition("Look into it:\n")
    commands = [shlex.split(line) for line in after.splitlines()]
    assert [command[3] for command in commands[:3]] == ["inspect", "verify", "dump"]
    for command in commands:
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert (ran.returncode, ran.stderr) == (0, ""), command
    assert not home.exists()  # the last command has removed it


def rows_in(directory: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in directory.glob("*.parquet"))


def pairs_in(home: Path) -> int:
    """How many impressions and clicks belong together, by pyarrow's join of all files."""
    shown, clicked = (
        pa.concat_tables(pq.read_table(path, columns=["ad_id", "ts"]) for path in sorted((home / side).iterdir()))
        for side in ("impressions", "clicks")
    )
    joined = shown.rename_columns(["ad_id", "shown"]).join(clicked, "ad_id", join_type="inner")
    after = pc.subtract(joined.column("ts").cast(pa.int64()), joined.column("shown").cast(pa.int64()))
    return int(pc.sum(pc.and_(pc.greater_equal(after, 0), pc.less_equal(after, 20_000_000))).as_py())


@pytest.mark.spark
@pytest.mark.long
def test_interrupt_ends_spark_and_says_what_is_left(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "--seconds", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[:1] == ["epoch"]:
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate()
    assert (process.returncode, err) == (130, "")
    assert "Interrupted. What was written stays in state/demo/run-1\n" in out


# ---- without Spark


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeJob]:
    """A job that needs no Spark, in the place of the real one."""
    monkeypatch.setattr(job_module, "DemoJob", FakeJob)
    monkeypatch.setattr("lsmstate.spark.demo_session.check_java", lambda: None)
    return FakeJob


def test_wrong_result_is_exit_code_1(
    run: Run, fake: type[FakeJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "verdict", Verdict(rows=10, expected=11, missing=2, extra=1))
    result = run("demo", tmp_path / "demo")
    assert (result.code, result.err) == (1, "")
    assert "WRONG: the result differs from the batch join: 2 rows missing, 1 row too many." in result.out


def test_failure_of_the_job_is_one_line_and_exit_code_2(
    run: Run, fake: type[FakeJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "error", NotAStateError("the query has failed"))
    result = run("demo", tmp_path / "demo")
    assert (result.code, result.err) == (2, "lsmstate: the query has failed\n")


@pytest.mark.usefixtures("fake")
def test_right_result_is_exit_code_0_and_no_run_touches_another(run: Run, tmp_path: Path) -> None:
    for number in (1, 2):
        result = run("demo", tmp_path / "demo")
        assert (result.code, result.err) == (0, "")
        assert f"state   {tmp_path}/demo/run-{number}/state/ad-join\n" in result.out
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["run-1", "run-2"]


def test_each_run_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    fs, where = LocalFileSystem(), tmp_path / "demo"
    assert new_run(fs, str(where)) == f"{where}/run-1"
    (where / "run-1").mkdir(parents=True)
    (where / "run-9").mkdir()
    (where / "other").touch()
    assert new_run(fs, str(where)) == f"{where}/run-10"


def test_demo_refuses_a_state_and_what_is_no_directory(run: Run, built: Path, tmp_path: Path) -> None:
    assert run("demo", built).code == 2
    (tmp_path / "join").mkdir()
    (tmp_path / "join" / "JOB").touch()
    assert run("demo", tmp_path / "join").code == 2
    (tmp_path / "file").touch()
    with pytest.raises(NotAStateError, match="not a directory"):
        new_run(LocalFileSystem(), str(tmp_path / "file"))


@pytest.mark.parametrize("seconds", ["0", "-1", "301", "2.5", "x"])
def test_seconds_that_make_no_sense_are_refused(run: Run, tmp_path: Path, seconds: str) -> None:
    result = run("demo", tmp_path / "demo", f"--seconds={seconds}")
    assert result.code == 2
    assert "a whole number from 1 to 300" in result.err
    assert not (tmp_path / "demo").exists()


def test_without_java_one_line_says_what_to_do(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    result = run("demo", tmp_path / "demo")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("lsmstate: Spark needs Java 17 or newer, and there is none: `make demo` installs it")
    assert result.err.count("\n") == 1
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("says", "found"), [('openjdk version "1.8.0_402"', "is Java 8"), ("no Java here", "cannot be run")]
)
def test_java_that_will_not_do_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: str
) -> None:
    java = tmp_path / "jvm/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jvm"))
    result = run("demo", tmp_path / "demo")
    assert result.code == 2
    assert f"{java} {found}: " in result.err
