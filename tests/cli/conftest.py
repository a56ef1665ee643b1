from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lsmstate.cli import main
from tests.support import cli_state
from tests.support.join_home import JoinHome

JOIN_LAST = 5  # with three epochs retained: 3 to 5 can be read


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.out)
        return told


Run = Callable[..., Result]


class Terminal(io.StringIO):
    """What a command takes for a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Screen:
    """A terminal on stderr, and a file on stdout."""

    err: Terminal = field(default_factory=Terminal)
    out: io.StringIO = field(default_factory=io.StringIO)


def on_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """From now on that is what commands see. No fixture: pytest puts its own in place before the test itself."""
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen.err)
    monkeypatch.setattr("sys.stdout", screen.out)
    monkeypatch.setenv("TERM", "xterm")
    return screen


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""

    def call(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cli_state.build(tmp_path_factory.mktemp("cli") / "state")


@pytest.fixture
def state(built: Path, tmp_path: Path) -> Path:
    """A state of its own, to be damaged."""
    return Path(shutil.copytree(built, tmp_path / "state"))


@pytest.fixture(scope="session")
def sound_join(tmp_path_factory: pytest.TempPathFactory) -> JoinHome:
    return JoinHome(tmp_path_factory.mktemp("join") / "home").epochs(JOIN_LAST)


@pytest.fixture
def join(sound_join: JoinHome, tmp_path: Path) -> JoinHome:
    """A join of its own, to be damaged."""
    return JoinHome(shutil.copytree(sound_join.path, tmp_path / "home"))
