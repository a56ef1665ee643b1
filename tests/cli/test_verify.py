"""`lsmstate verify`: exit codes, what is harmed, and advice that works."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lsmstate import CorruptionError, StateStore
from lsmstate.cli import verify
from lsmstate.engine.verify import Problem
from tests.cli.conftest import Run, on_screen
from tests.support.cli_state import EPOCHS, ads, build, damage, head, newest_file


def test_sound_state_is_exit_code_0(run: Run, built: Path) -> None:
    result = run("verify", built)
    assert (result.code, result.err) == (0, "")
    assert "epochs 1 to 4 in 4 files" in result.out
    assert "OK" in result.out


def test_verify_json_has_the_documented_parts(run: Run, built: Path) -> None:
    assert run("verify", built, "--json").json == {
        "schema": "lsmstate.verify/1",
        "path": str(built),
        "ok": True,
        "opened": True,
        "epochs": [1, 2, 3, 4],
        "whole_epochs": [1, 2, 3, 4],
        "files": 4,
        "problems": [],
        "advice": [],
    }


def test_verify_leaves_the_state_as_it_was(run: Run, state: Path) -> None:
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    run("verify", state)
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before


def test_damaged_newest_file_names_epoch_and_way_back(run: Run, state: Path) -> None:
    damage(newest_file(state), 500)
    told = run("verify", state, "--json")
    assert told.code == 1
    assert told.json["problems"] == [
        {"path": str(newest_file(state)), "what": "damaged block at byte 0", "epochs": [EPOCHS]}
    ]
    assert told.json["whole_epochs"] == [1, 2, 3]
    human = run("verify", state)
    assert human.code == 1
    for words in ("DAMAGED", "damaged block at byte 0", "epoch 4", "epochs 1 to 3", "--recover 3"):
        assert words in human.out
    assert run("doctor", state, "--recover", 3, "--yes").code == 0  # what the advice says
    with StateStore.open(state) as store:
        assert store.verify() == []


def test_file_copied_from_a_backup_repairs_the_state(run: Run, state: Path, built: Path) -> None:
    file = newest_file(state)
    damage(file, 500)
    assert run("verify", state).code == 1
    shutil.copy(built / "sst" / file.name, file)
    assert run("verify", state).code == 0


def test_damage_that_spares_the_newest_epoch_lets_jobs_go_on(run: Run, state: Path) -> None:
    (older,) = (state / "manifest").glob("000000000002-*")
    damage(older, 150)
    told = run("verify", state, "--json")
    assert told.code == 1
    assert told.json["whole_epochs"] == [1, 3, 4]
    assert "jobs can go on" in " ".join(told.json["advice"])


def test_damage_of_all_epochs_says_so(run: Run, state: Path) -> None:
    min((state / "sst").iterdir()).unlink()
    told = run("verify", state, "--json")
    assert told.code == 1
    assert told.json["problems"][0]["what"] == "the file is missing"
    assert told.json["problems"][0]["epochs"] == [1, 2, 3, 4]
    assert told.json["whole_epochs"] == []


def test_damaged_head_is_a_problem_and_its_advice_works(run: Run, state: Path) -> None:
    name = head(state)
    damage(state / "manifest" / name, 150)
    with pytest.raises(CorruptionError):
        StateStore.open(state)
    told = run("verify", state, "--json")
    assert told.code == 1
    assert (told.json["ok"], told.json["opened"], told.json["whole_epochs"]) == (False, False, [1, 2, 3])
    assert [Path(problem["path"]).name for problem in told.json["problems"]] == [name]
    human = run("verify", state)
    assert human.code == 1
    found = re.search(r"--recover\s+(\d+)", human.out)
    assert found is not None
    assert run("doctor", state, "--recover", found[1], "--yes").code == 0
    with StateStore.open(state) as store:
        assert store.epochs() == [1, 2, 3]
        assert store.verify() == []
        store.append(0, ads(9000, 10))
        store.snapshot_epoch(4)
    assert run("verify", state).code == 0


@pytest.mark.parametrize("way", ["damaged", "missing"])
def test_lost_identity_is_a_problem_not_a_usage_error(run: Run, state: Path, way: str) -> None:
    damage(newest_file(state), 500)
    if way == "damaged":
        damage(state / "STATE", 60)
    else:
        (state / "STATE").unlink()
    told = run("verify", state, "--json")
    assert told.code == 1
    assert [Path(problem["path"]).name for problem in told.json["problems"]] == ["STATE", newest_file(state).name]
    assert "copy it from any backup" in run("verify", state).out


@pytest.mark.parametrize("command", ["verify", "doctor", "inspect"])
@pytest.mark.parametrize("keep_directory", [False, True])
def test_lost_manifests_are_told_in_words(run: Run, state: Path, keep_directory: bool, command: str) -> None:
    shutil.rmtree(state / "manifest")
    if keep_directory:
        (state / "manifest").mkdir()
    result = run(command, state)
    told = " ".join((result.out + result.err).split())
    assert result.code == (2 if command == "inspect" else 1)  # it cannot be opened, and inspect shows nothing
    assert "expected the manifests, which say what of 4 files in sst/ is the state" in told
    assert "No such file" not in told
    if command != "inspect":
        assert "Copy the manifests from the newest backup" in told


@pytest.mark.parametrize("what", ["head-*", "*"])
def test_lost_manifests_are_a_problem(run: Run, state: Path, what: str) -> None:
    for path in (state / "manifest").glob(what):
        path.unlink()
    if what == "*":
        (state / "manifest").rmdir()
    result = run("verify", state, "--json")
    assert result.code == 1
    assert (result.json["opened"], result.err) == (False, "")


def test_newer_format_is_exit_code_2_with_the_way_out(run: Run, state: Path) -> None:
    path = state / "STATE"
    path.write_bytes(path.read_bytes().replace(b"lsmstate 1 ", b"lsmstate 9 ", 1))
    result = run("verify", state)
    assert (result.code, result.out) == (2, "")
    assert "format 9" in result.err


def test_epochs_that_a_writer_retired_meanwhile_are_no_problem(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = build(tmp_path / "state")
    real = StateStore.verify

    def verify_while_another_writes(store: StateStore, *rest: object) -> list[Problem]:
        with StateStore.open(state) as writer:
            for epoch in range(5, 30):
                writer.snapshot_epoch(epoch)
        return real(store)

    monkeypatch.setattr(StateStore, "verify", verify_while_another_writes)
    result = run("verify", state)
    assert (result.code, result.err) == (0, "")


def test_progress_goes_to_a_terminal_on_stderr_only(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    assert verify.check(verify.LocalFileSystem(), str(built))["ok"]
    assert "checking" in screen.err.getvalue()
    assert screen.out.getvalue() == ""
