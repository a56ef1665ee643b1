"""Damage to a join's state: found by `lsmstate verify`, told with whom it harms and what to do; never a traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lsmstate import CorruptionError, EpochError, LsmStateError, read_state
from tests.cli.conftest import JOIN_LAST as LAST
from tests.cli.conftest import Run
from tests.support.cli_state import damage
from tests.support.join_damage import check, wrong
from tests.support.join_home import ROWS, JoinHome, join_spec, rewrite


def test_flipped_byte_of_the_newest_file_harms_the_newest_epoch(run: Run, join: JoinHome) -> None:
    file = join.sstable(1, LAST)
    damage(file, 500)
    told = check(run, join)
    assert wrong(told) == [(f"p-00001/sst/{file.name}", "damaged block at byte 0", [LAST])]
    assert told["whole_epochs"] == [3, 4]
    advice = " ".join(told["advice"])
    assert "the query cannot go on" in advice
    assert f"read_state('{join.path}', epoch=4" in advice
    assert read_state(join.path, epoch=4).num_rows  # what the advice says


def test_flipped_byte_of_an_old_file_harms_all_epochs_that_share_it(run: Run, join: JoinHome) -> None:
    damage(join.sstable(2, 1), 500)
    told = check(run, join)
    assert [(problem[1], problem[2]) for problem in wrong(told)] == [("damaged block at byte 0", [3, 4, 5])]
    assert told["whole_epochs"] == []


def test_file_copied_from_a_backup_repairs_the_state(run: Run, join: JoinHome, sound_join: JoinHome) -> None:
    join.sstable(1, LAST).unlink()
    told = check(run, join)
    ((path, what, epochs),) = wrong(told)
    assert (what, epochs) == ("the file is missing", [LAST])
    shutil.copy(sound_join.path / path, join.path / path)
    assert run("verify", join.path).code == 0


def test_damage_that_spares_the_newest_epoch_lets_the_query_go_on(run: Run, join: JoinHome) -> None:
    damage(join.manifest(0, 3), 150)
    told = check(run, join)
    assert wrong(told)[0][2] == [3]
    assert told["whole_epochs"] == [4, 5]
    assert "the query can go on" in " ".join(told["advice"])
    join.epoch(LAST + 1)  # what the advice says
    assert run("verify", join.path).code == 0  # and epoch 3 is retired


@pytest.mark.parametrize("way", ["missing", "damaged"])
def test_base_of_the_manifests_is_named(run: Run, join: JoinHome, way: str) -> None:
    base = join.manifest(0, 1)  # retired, but the deltas lean on it
    if way == "missing":
        base.unlink()
    else:
        damage(base, 150)
    told = check(run, join)
    assert told["whole_epochs"] == []
    assert run("inspect", join.path).code == 2
    if way == "missing":
        assert {problem[1] for problem in wrong(told)} == {"the full manifest that it leans on is missing"}


@pytest.mark.parametrize("way", ["missing", "damaged"])
def test_manifest_that_a_barrier_names_is_missed(run: Run, join: JoinHome, way: str) -> None:
    file = join.manifest(2, 4)
    if way == "missing":
        file.unlink()
    else:
        damage(file, 150)
    told = check(run, join)
    ((path, what, epochs),) = wrong(told)
    assert (path, epochs) == (f"p-00002/manifest/{file.name}", [4])
    assert what.startswith("the file is missing" if way == "missing" else "damaged at byte")


def test_damaged_manifest_of_the_newest_epoch_is_told_apart_from_a_crash(run: Run, join: JoinHome) -> None:
    file = join.manifest(1, LAST)
    damage(file, 150)
    told = check(run, join)
    assert wrong(told) == [(f"p-00001/manifest/{file.name}", "damaged, or torn by a crash", [LAST])]
    assert told["epochs"] == told["whole_epochs"] == [3, 4]
    assert "if Spark has not finished batch 4, it does it again" in " ".join(told["advice"])
    with pytest.raises(EpochError, match=file.name):  # had Spark finished it
        join.epoch(LAST + 1)
    join.epoch(LAST)  # Spark does it again
    assert run("verify", join.path).code == 0


def test_lost_manifest_of_the_newest_epoch_looks_like_a_query_that_was_stopped(run: Run, join: JoinHome) -> None:
    join.manifest(1, LAST).unlink()
    result = run("verify", join.path, "--json")
    assert (result.code, result.json["epochs"], result.json["under_way"]) == (0, [3, 4], LAST)
    with pytest.raises(EpochError, match=r"partitions \[1\] have not finished"):
        join.epoch(LAST + 1)


def test_missing_partition_harms_all_epochs_and_is_not_made_anew(run: Run, join: JoinHome) -> None:
    shutil.rmtree(join.partition(1))
    told = check(run, join)
    assert wrong(told) == [("p-00001", "the directory of the partition is missing", [3, 4])]
    result = run("inspect", join.path)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "p-00001" in result.err
    with pytest.raises(LsmStateError, match="p-00001"):
        read_state(join.path, epoch=4)
    with pytest.raises(LsmStateError, match=r"partitions \[1\].* There is no directory .*/p-00001, though") as error:
        join.epoch(LAST + 1)
    assert "limit" not in str(error.value)
    assert not join.partition(1).exists()


@pytest.mark.parametrize(
    ("keep_directory", "message"),
    [(False, "There is no directory .*/p-00001/manifest,"), (True, "There is nothing in")],
)
def test_partition_without_its_manifests_is_named_and_not_begun_anew(
    run: Run, join: JoinHome, keep_directory: bool, message: str
) -> None:
    shutil.rmtree(join.partition(1) / "manifest")
    if keep_directory:
        (join.partition(1) / "manifest").mkdir()
    ((path, what, _),) = wrong(check(run, join))
    assert path == "p-00001/manifest"
    assert "expected the manifests, which say what of 5 files in sst/ is the state" in what
    with pytest.raises(EpochError, match=message) as error:
        join.epoch(LAST + 1)
    assert "limit" not in str(error.value)
    with pytest.raises(CorruptionError, match="expected the manifests"):
        join.epoch(LAST)


@pytest.mark.parametrize("way", ["missing", "damaged", "of another join"])
def test_lost_identity_of_a_partition_is_a_problem(run: Run, join: JoinHome, tmp_path: Path, way: str) -> None:
    file = join.partition(1) / "STATE"
    if way == "damaged":
        damage(file, 60)
    else:
        file.unlink()
    if way == "of another join":
        other = JoinHome(tmp_path / "other", join_spec(str(tmp_path / "other"), upper_s=7)).epochs(1)
        shutil.copy(other.partition(1) / "STATE", file)
    told = check(run, join)
    ((path, what, epochs),) = wrong(told)
    assert (path, epochs) == ("p-00001/STATE", [3, 4, 5])
    assert what.startswith({"missing": "the file is", "damaged": "damaged"}.get(way, "its sides are not those of JOB"))


def test_rows_of_another_partition_are_found(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home")
    join._mine = lambda side, partition, batch: batch  # type: ignore[method-assign]
    join.task(1, 0, join.rows(0, 1))
    for partition in (1, 2):
        join.task(1, partition)
    told = check(run, join)
    ((path, what, epochs),) = wrong(told)
    assert path.startswith("p-00000/sst/")
    assert "keys do not belong here" in what
    assert epochs == [1]


def test_watermark_of_a_partition_that_is_not_the_barriers_is_found(run: Run, join: JoinHome) -> None:
    rewrite(join.manifest(1, LAST), watermark=7)
    told = check(run, join)
    assert [(problem[1], problem[2]) for problem in wrong(told)] == [
        ("its watermark is not that of the barrier", [LAST])
    ]


def test_partitions_of_two_states_that_were_mixed_up_are_found(run: Run, join: JoinHome, tmp_path: Path) -> None:
    other = JoinHome(tmp_path / "other").epochs(LAST)
    shutil.rmtree(join.partition(1))
    shutil.copytree(other.partition(1), join.partition(1))
    told = check(run, join)
    assert {problem[1] for problem in wrong(told)} == {"the file is missing"}
    assert told["whole_epochs"] == [LAST]  # complete there too, and no barrier has said otherwise


def test_tables_of_rows_survive_what_verify_says_is_whole(run: Run, join: JoinHome) -> None:
    damage(join.sstable(0, LAST), 500)
    told = check(run, join)
    for epoch in told["whole_epochs"]:
        rows = read_state(join.path, epoch=epoch)
        assert rows.num_rows == ROWS * epoch
