"""Damage to the documents that hold a join's state together: barriers, JOB, runs. Their lies are found too."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsmstate import LsmStateError, read_state
from lsmstate.manifest.codec import encode
from tests.cli.conftest import JOIN_LAST as LAST
from tests.cli.conftest import Run
from tests.support.cli_state import damage
from tests.support.join_damage import check, wrong
from tests.support.join_home import JoinHome, rewrite


@pytest.mark.parametrize("at", [0, 30, 200])
def test_damaged_barrier_is_a_problem_of_its_epoch(run: Run, join: JoinHome, at: int) -> None:
    damage(join.barrier_file(4), at)
    told = check(run, join)
    ((path, what, epochs),) = wrong(told)
    assert (path, epochs) == (f"barriers/{join.barrier_file(4).name}", [4])  # there is only one candidate of 3
    assert what.startswith("damaged at byte")
    assert told["whole_epochs"] == [3, 5]
    assert "the query can go on" in " ".join(told["advice"])
    result = run("inspect", join.path, "--json")
    assert result.code == 0
    assert [(e["epoch"], e["error"] is None) for e in result.json["epochs"]] == [(3, True), (4, False), (5, True)]
    assert "DAMAGED: see `lsmstate verify`" in run("inspect", join.path).out
    assert read_state(join.path).num_rows
    join.epoch(LAST + 1)  # what the advice says


def test_damaged_newest_barrier_stops_the_query_and_spares_what_came_before(run: Run, join: JoinHome) -> None:
    damage(join.barrier_file(LAST), 200)
    told = check(run, join)
    assert [problem[2] for problem in wrong(told)] == [[LAST]]
    assert told["whole_epochs"] == [3, 4]
    assert "the query cannot go on" in " ".join(told["advice"])
    assert read_state(join.path, epoch=4).num_rows
    with pytest.raises(LsmStateError, match="damaged"):
        read_state(join.path)
    with pytest.raises(LsmStateError, match="damaged"):
        join.epoch(LAST + 1)


def test_damaged_barrier_leaves_an_epoch_with_several_candidates_in_doubt(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home").epochs(2)
    join.epoch(2, partitions=[1])
    join.epoch(3)
    damage(join.barrier_file(3), 200)
    told = check(run, join)
    assert [problem[2] for problem in wrong(told)] == [[2, 3]]
    assert told["epochs"] == [1]


@pytest.mark.parametrize("epoch", [4, LAST])
def test_lost_barrier_is_missed(run: Run, join: JoinHome, epoch: int) -> None:
    join.barrier_file(epoch).unlink()
    told = check(run, join)
    ((path, what, epochs),) = wrong(told)
    assert (path, epochs) == (f"barriers/{join.barrier_file(epoch).name}", [epoch])
    assert what.startswith("the file is missing")
    assert ("the query can go on" in " ".join(told["advice"])) == (epoch < LAST)


def test_loss_of_all_barriers_does_not_look_like_a_new_state(run: Run, join: JoinHome) -> None:
    shutil.rmtree(join.path / "barriers")
    told = check(run, join)
    assert [problem[2] for problem in wrong(told)] == [[LAST]]
    assert told["epochs"] == []


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "another epoch": ({"epoch": 3}, "the barrier of epoch 4"),
    "no parents": ({"parents": []}, "the barrier of epoch 4"),
    "too few parents": ({"parents": ["000000000003-000001-x-000001.full"]}, "parents in 3 partitions"),
    "parents elsewhere": ({"parents": ["../../../etc/passwd"] * 3}, "the barrier of epoch 4"),
    "parents that are no names": ({"parents": [7, None, {}]}, "the barrier of epoch 4"),
    "parents of another epoch": ({"parents": ["000000000002-000001-x-000001.full"] * 3}, "the barrier of epoch 4"),
    "numbers that are none": ({"watermark": "late"}, "the barrier of epoch 4"),
    "too much": ({"more": 1}, "a barrier"),
    "another parent": (
        {"parent_epoch": 2, "parents": ["000000000002-000001-x-000001.full"] * 3},
        "it builds on epoch 2, not on epoch 3, the one before it",
    ),
    "no parent": ({"parent_epoch": None, "parents": []}, "it builds on no epoch, not on epoch 3"),
    "a watermark that goes back": ({"watermark": 7}, "its watermarks do not follow"),
    "another watermark for late rows": ({"late_watermark": None}, "its watermarks do not follow"),
}


@pytest.mark.parametrize("case", LIES)
def test_barrier_that_lies_with_a_right_checksum_is_found(run: Run, join: JoinHome, case: str) -> None:
    changes, what = LIES[case]
    rewrite(join.barrier_file(4), **changes)
    told = check(run, join)
    mine = [problem for problem in wrong(told) if problem[0] == f"barriers/{join.barrier_file(4).name}"]
    assert any(what in problem[1] for problem in mine)
    assert 4 not in told["whole_epochs"]
    assert run("inspect", join.path).code == 0


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


WAYS: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "flipped": lambda path: damage(path, 100),
    "cut short": _cut,
    "not ours": lambda path: damage(path, 0),
    "no partitions": lambda path: rewrite(path, partitions=0),
    "far too many partitions": lambda path: rewrite(path, partitions=10**12),
    "partitions in words": lambda path: rewrite(path, partitions="three"),
    "one side": lambda path: rewrite(path, sides=[]),
    "sides that are none": lambda path: rewrite(path, sides=[{"name": "left"}, 7]),
    "schema that is none": lambda path: rewrite(path, sides=[{"schema": "AAAA"}] * 2),
}


@pytest.mark.parametrize("way", WAYS)
def test_lost_job_is_a_problem_and_all_else_is_still_checked(run: Run, join: JoinHome, way: str) -> None:
    WAYS[way](join.path / "JOB")
    damage(join.sstable(1, LAST), 500)
    told = check(run, join)
    assert [problem[0] for problem in wrong(told)] == ["JOB", f"p-00001/sst/{join.sstable(1, LAST).name}"]
    assert (told["opened"], told["job"], told["partitions"]) == (False, None, 3)
    assert (told["epochs"], told["whole_epochs"]) == ([3, 4, 5], [3, 4])
    assert "copy the files named above from any backup" in " ".join(told["advice"])
    result = run("inspect", join.path)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    with pytest.raises(LsmStateError):
        read_state(join.path)


def test_lost_job_of_a_join_without_epochs_is_a_problem(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home")
    damage(join.path / "JOB", 100)
    told = check(run, join)
    assert (told["partitions"], [problem[0] for problem in wrong(told)]) == (None, ["JOB"])


@pytest.mark.parametrize("way", ["missing", "damaged", "empty"])
def test_lost_run_is_a_problem(run: Run, join: JoinHome, way: str) -> None:
    file = join.path / "runs" / "00000001"
    if way == "damaged":
        damage(file, 60)
    else:
        file.unlink()
    if way == "empty":
        file.write_bytes(encode("00000001", {}))
    told = check(run, join)
    ((path, _, epochs),) = wrong(told)
    assert path == ("runs" if way == "missing" else "runs/00000001")
    assert (epochs, told["whole_epochs"]) == ([], [3, 4, 5])
    assert "the query cannot go on" in " ".join(told["advice"])
    assert run("inspect", join.path).code == 0
