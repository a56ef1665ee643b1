"""`lsmstate doctor`: names what is damaged, tells what going back would lose, and goes back only when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsmstate import CorruptionError, FencedError, Options, StateStore, read_state
from tests.cli.conftest import JOIN_LAST, Run
from tests.support import cli_state
from tests.support.cli_state import ADS, EPOCHS, ads, clicks, damage, head, newest_file
from tests.support.join_home import JoinHome

Rows = dict[int, list[tuple[Any, ...]]]


def tree(path: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))}


def rows_at(state: Path, epoch: int) -> Rows:
    with StateStore.open(state, read_only=True) as store, store.at_epoch(epoch) as view:
        return {
            side: sorted((tuple(r.values()) for b in view.scan(side) for r in b.to_pylist()), key=repr)
            for side in (0, 1)
        }


def damaged_file(state: Path) -> None:
    file = newest_file(state)
    for at in range(5000, file.stat().st_size - 8000, 4096):  # in every block, so that whoever reads it notices
        damage(file, at)


def damaged_block(state: Path) -> None:
    """One that does not hold ids."""
    damage(newest_file(state), 5000)


def lost_file(state: Path) -> None:
    newest_file(state).unlink()


def damaged_head(state: Path) -> None:
    damage(state / "manifest" / head(state), 300)


def lost_head(state: Path) -> None:
    """The name of the head and the manifest itself: what the head was is nowhere else."""
    newest = state / "manifest" / head(state)
    for each in newest.parent.iterdir():
        if each.name.startswith(f"{EPOCHS:012d}"):
            damage(each, 300)
    damage(newest, 300)


DAMAGES = [damaged_file, lost_file, damaged_head, lost_head]


def test_sound_state_is_told_to_be_and_nothing_changes(run: Run, state: Path) -> None:
    before = tree(state)
    result = run("doctor", state, "--json")
    assert (result.code, result.err, result.json["ok"]) == (0, "", True)
    assert [choice["epoch"] for choice in result.json["recoveries"]] == [4, 3, 2, 1]
    assert result.json["recoveries"][0]["epochs"] == []
    assert "every checksum and every invariant holds" in run("doctor", state).out
    assert tree(state) == before


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_is_isolated_and_named_and_other_epochs_stay_readable(
    run: Run, built: Path, state: Path, how: Callable[[Path], None]
) -> None:
    how(state)
    before = tree(state)
    told = run("doctor", state, "--json")
    assert told.code == 1
    assert told.json["problems"]
    assert [choice["epoch"] for choice in told.json["recoveries"]] == [3, 2, 1]
    assert run("doctor", state).code == 1
    assert tree(state) == before
    if "head" not in how.__name__:
        for epoch in (1, 2, 3):
            assert rows_at(state, epoch) == rows_at(built, epoch)
        with pytest.raises(CorruptionError, match=r"000000000004.*\.sst"):
            rows_at(state, 4)
    else:
        with pytest.raises(CorruptionError, match="head-"):
            StateStore.open(state)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("epoch", [3, 1])
def test_going_back_gives_the_rows_of_that_epoch_and_the_state_goes_on(
    run: Run, built: Path, state: Path, how: Callable[[Path], None], epoch: int
) -> None:
    how(state)
    result = run("doctor", state, "--recover", epoch, "--yes", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json["recovered"]["epoch"] == epoch
    assert rows_at(state, epoch) == rows_at(built, epoch)
    with StateStore.open(state) as store:
        assert store.epochs() == list(range(1, epoch + 1))
        store.append(0, ads(9000, 10))
        store.snapshot_epoch(epoch + 1)
        assert store.verify() == []
    assert run("verify", state).code == 0


@pytest.mark.parametrize("how", [lambda state: None, damaged_block, damaged_head, lost_head])
def test_loss_is_told_by_epochs_rows_and_bytes_before_it_happens(
    run: Run, state: Path, how: Callable[[Path], None]
) -> None:
    sizes = {int(path.name[:12]): path.stat().st_size for path in (state / "sst").iterdir()}
    how(state)
    choices = {choice["epoch"]: choice for choice in run("doctor", state, "--json").json["recoveries"]}
    assert choices[2]["epochs"] == [3, 4]
    assert choices[2]["rows"] == {"ads": 2000, "clicks": 1000}
    assert choices[2]["bytes"] == sizes[3] + sizes[4]


def test_rows_in_files_that_cannot_be_read_are_told_as_such(run: Run, state: Path) -> None:
    file = newest_file(state)
    file.write_bytes(file.read_bytes()[:-1])
    choice = run("doctor", state, "--json").json["recoveries"][0]
    assert (choice["epoch"], choice["unreadable"]) == (3, [file.name])
    assert "1 file that cannot be read" in run("doctor", state, "--recover", 3).err


def test_nothing_happens_where_nobody_can_be_asked(run: Run, state: Path) -> None:
    damaged_head(state)
    before = tree(state)
    result = run("doctor", state, "--recover", 3)
    assert (result.code, result.out) == (2, "")
    assert "loses epoch 4: 1000 rows of ads, 500 rows of clicks" in result.err
    assert "repeat it with --yes" in result.err
    assert tree(state) == before


@pytest.mark.parametrize("epoch", [0, 4, 99])
def test_epoch_that_is_not_whole_cannot_be_gone_back_to(run: Run, state: Path, epoch: int) -> None:
    damaged_file(state)
    before = tree(state)
    result = run("doctor", state, "--recover", epoch, "--yes")
    assert result.code == 2
    assert f"epoch {epoch} is not whole; those that can be gone back to: epochs 1 to 3" in result.err
    assert tree(state) == before


def test_handle_that_stood_on_what_was_left_behind_is_fenced(run: Run, state: Path) -> None:
    with StateStore.open(state) as store:
        store.append(1, clicks(9000, 1))
        assert run("doctor", state, "--recover", 3, "--yes").code == 0
        with pytest.raises(FencedError):
            store.snapshot_epoch(5)


def test_state_without_its_identity_has_no_way_back_and_says_what_to_do(run: Run, state: Path) -> None:
    (state / "STATE").unlink()
    result = run("doctor", state, "--json")
    assert (result.code, result.json["recoveries"]) == (1, [])
    assert "No epoch can be gone back to" in run("doctor", state).out
    assert run("doctor", state, "--recover", 3, "--yes").code == 2


def test_damaged_log_is_left_behind_and_a_new_one_begun(run: Run, tmp_path: Path) -> None:
    path, options = tmp_path / "logged", Options(durability="wal")
    with StateStore.open(path, sides=[ADS], options=options) as store:
        store.append(0, ads(0, 50))
        store.snapshot_epoch(1)
        for n in range(1, 4):
            store.append(0, ads(n * 100, 50))
        position = store.wal_position
    segment = max((path / "wal").iterdir())
    damage(segment, segment.stat().st_size // 2)
    with pytest.raises(CorruptionError, match="log-"):
        StateStore.open(path, options=options)
    told = run("doctor", path, "--json")
    assert told.code == 1
    assert told.json["recoveries"][0]["log_bytes"] > 0
    checked = run("verify", path, "--json").json
    assert (checked["whole_epochs"], [each["epochs"] for each in checked["problems"]]) == ([1], [[]])
    assert "Or go back to epoch 1, which is not harmed, leave the log behind" in checked["advice"][1]
    assert "built anew" not in " ".join([*checked["advice"], run("doctor", path).out])
    assert run("doctor", path, "--recover", 1, "--yes").code == 0
    with StateStore.open(path, options=options) as store:
        assert sum(batch.num_rows for batch in store.scan(0)) == 50
        assert store.wal_position >= position
        store.append(0, ads(900, 5))
    with StateStore.open(path, options=options) as store:
        assert sum(batch.num_rows for batch in store.scan(0)) == 55
        store.snapshot_epoch(2)
    assert run("verify", path).code == 0


def test_join_goes_back_in_all_partitions_at_once(run: Run, join: JoinHome) -> None:
    before = read_state(join.path, JOIN_LAST - 1, "left").sort_by("ad_id")
    damage(join.sstable(1, JOIN_LAST), 100)
    told = run("doctor", join.path, "--json")
    assert (told.code, told.json["kind"]) == (1, "join")
    (newest, *_) = told.json["recoveries"]
    assert (newest["epoch"], newest["epochs"], newest["rows"]) == (4, [5], {"left": 120, "right": 120})
    assert run("doctor", join.path, "--recover", 4, "--yes").code == 0
    assert read_state(join.path, side="left").sort_by("ad_id") == before
    again = JoinHome(join.path, join.spec, query="query-2")
    again.epoch(5)
    assert read_state(join.path, side="left").num_rows == before.num_rows + 120


def test_join_whose_newest_manifest_is_damaged_goes_back(run: Run, join: JoinHome) -> None:
    damage(join.manifest(0, JOIN_LAST), 200)
    told = run("doctor", join.path, "--json")
    assert told.code == 1
    assert told.json["recoveries"][0]["epoch"] == JOIN_LAST - 1
    assert run("doctor", join.path, "--recover", JOIN_LAST - 1, "--yes").code == 0
    assert run("verify", join.path).code == 0


def test_partition_alone_cannot_go_back(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home").epochs(2)
    result = run("doctor", join.partition(0), "--recover", 1, "--yes")
    assert result.code == 2


def test_report_has_the_shape_that_is_documented(run: Run, state: Path) -> None:
    told = run("doctor", state, "--json").json
    document = (Path(__file__).parents[2] / "docs/cli-state.md").read_text()
    section = document.partition("\n## lsmstate doctor\n")[2].partition("\n## ")[0]
    assert told["schema"] == "lsmstate.doctor/1"
    for field in (*told, *told["recoveries"][0]):
        assert f"`{field}`" in section
    assert len(told["recoveries"]) == cli_state.EPOCHS
