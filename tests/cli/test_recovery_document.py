"""docs/recovery.md: each of its commands is run on a state that is damaged as it says, and does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from lsmstate import CorruptionError, StateStore
from tests.cli.conftest import JOIN_LAST, Run
from tests.support.cli_state import damage, head, newest_file
from tests.support.join_home import JoinHome

DOCUMENT = (Path(__file__).parents[2] / "docs/recovery.md").read_text()
COMMANDS = re.findall(r"^\$ lsmstate ([^#\n]*?) *(?:# exit code (\d).*)?$", DOCUMENT, re.MULTILINE)


def test_every_command_does_what_it_says(
    run: Run, built: Path, sound_join: JoinHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Path(shutil.copytree(built, tmp_path / "state" / "orders"))
    join = JoinHome(shutil.copytree(sound_join.path, tmp_path / "state" / "ads"))
    damage(state / "manifest" / head(state), 300)
    damage(newest_file(state), 5000)
    damage(join.manifest(0, JOIN_LAST), 200)
    with pytest.raises(CorruptionError):
        StateStore.open(state)
    monkeypatch.chdir(tmp_path)
    older = min(path.name for path in (state / "sst").iterdir())
    assert len(COMMANDS) >= 7
    for command, code in COMMANDS:
        result = run(*shlex.split(command.replace("FILE", older)))
        assert result.code == int(code or 0), (command, result)
    with StateStore.open(state) as store:
        assert store.epochs() == [1, 2, 3]


def test_directory_is_shared_as_it_says(tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    mine = script.replace("analysts", subprocess.check_output(["id", "-gn"], text=True).strip())
    subprocess.run(["sh", "-e", "-c", mine], cwd=tmp_path, check=True)
    assert (tmp_path / "state" / "shared").stat().st_mode & 0o7777 == 0o2770


@pytest.mark.parametrize("anchor", sorted(set(re.findall(r"\]\(#([a-z-]+)\)", DOCUMENT))))
def test_every_symptom_leads_to_a_section(anchor: str) -> None:
    titles = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.*)$", DOCUMENT, re.MULTILINE)}
    assert anchor in titles


@pytest.mark.parametrize(
    "words",
    [
        "do not fit into the address space",
        "a state needs a POSIX file system with hard links and with fsync",
        "is not a directory; links inside a state are not followed",
        "is not complete",
    ],
)
def test_words_of_the_document_are_those_of_the_errors(words: str) -> None:
    root = Path(__file__).parents[2]
    sources = [path.read_text() for package in ("lsmstate", "iopool") for path in (root / package).rglob("*.py")]
    assert words in DOCUMENT
    assert any(words in source for source in sources)
