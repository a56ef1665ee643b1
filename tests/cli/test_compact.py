"""`lsmstate compact`: fewer runs with the next epoch of any writer, the same rows, and nobody is disturbed."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from iopool import LocalFileSystem
from lsmstate import Options, Side, SnapshotExpired, StateStore
from lsmstate.cli import compact
from lsmstate.engine import compactor
from lsmstate.join.reading import read_state
from lsmstate.manifest import names
from tests.cli.conftest import JOIN_LAST, Result, Run, on_screen
from tests.cli.test_join_state import on_one_line, tree
from tests.support.cli_state import ADS, CLICKS, EPOCHS, SECOND_US, START_US, ads, clicks, damage
from tests.support.join_home import JoinHome
from tests.support.states import Row, rows_of

SMALL = 20  # epochs: more runs than the picker leaves alone
OPTIONS = Options(auto_compact=False, retain=3)


def small_epochs(path: Path, sides: list[Side]) -> Path:
    with StateStore.open(path, sides=sides, options=OPTIONS) as store:
        for epoch in range(1, SMALL + 1):
            for number, rows in enumerate((ads, clicks)[: len(sides)]):
                store.append(number, rows(epoch * 10, 10))
            store.snapshot_epoch(epoch)
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_epochs(tmp_path / "small", [ADS, CLICKS])


def rows(path: Path) -> list[list[Row]]:
    with StateStore.open(path, read_only=True) as store:
        return [rows_of(store.scan(side)) for side in range(len(store.sides))]


def one_more_epoch(path: Path, epoch: int) -> list[int]:
    """An epoch without rows; gives the runs of each side."""
    with StateStore.open(path, options=OPTIONS) as store:
        store.snapshot_epoch(epoch)
        return [side.runs for side in store.stats().sides]


def test_many_small_runs_become_few_with_the_next_epoch_and_rows_stay(run: Run, small: Path) -> None:
    before, manifests = rows(small), tree(small / "manifest")
    result = run("compact", small)
    assert (result.code, result.err) == (0, "")
    assert tree(small / "manifest") == manifests  # nothing is published
    assert list((small / "pins").iterdir()) == []
    for words in ("merged 1 merge, 400 rows, ", "ads: 20 -> 1", "clicks: 20 -> 1", "with the next epoch of the job"):
        assert words in on_one_line(result.out)
    assert one_more_epoch(small, SMALL + 1) == [1, 1]
    assert rows(small) == before
    assert run("verify", small).code == 0


def test_second_compact_before_the_next_epoch_does_nothing_twice(run: Run, small: Path) -> None:
    run("compact", small)
    files = {path.name for path in (small / "sst").iterdir()}
    again = run("compact", small)
    assert again.code == 0
    assert "what was merged before waits for the job" in on_one_line(again.out)
    assert {path.name for path in (small / "sst").iterdir()} == files
    assert one_more_epoch(small, SMALL + 1) == [1, 1]


def test_major_folds_removed_rows(run: Run, state: Path) -> None:
    before = rows(state)
    told = run("compact", state, "--major", "--json").json
    assert told["major"] is True
    assert told["states"][0]["merges"] > 1  # merges that build on each other
    assert one_more_epoch(state, EPOCHS + 1) == told["states"][0]["runs_after"]
    assert rows(state) == before
    with StateStore.open(state, options=OPTIONS) as store:
        assert [side.rows for side in store.stats().sides] == list(map(len, before))  # removed rows are in no file
        store.snapshot_epoch(EPOCHS + 2)
        assert store.stats().tombstones == 0
        assert store.verify() == []


def test_writer_that_is_open_meanwhile_is_not_fenced_and_adopts(run: Run, small: Path) -> None:
    with StateStore.open(small, options=OPTIONS) as writer:
        writer.append(0, ads(9000, 5))
        assert run("compact", small).code == 0
        writer.append(1, clicks(9000, 5))
        writer.snapshot_epoch(SMALL + 1)
        assert [side.runs for side in writer.stats().sides] == [2, 2]
        assert writer.stats().compaction.adopted == 1
        writer.snapshot_epoch(SMALL + 2)
        assert writer.verify() == []
    assert [len(side) for side in rows(small)] == [SMALL * 10 + 5] * 2
    assert list((small / "merges").iterdir()) == []


def test_job_that_retires_everything_leaves_what_is_being_merged(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, merged = small_epochs(tmp_path / "one", [ADS]), compactor.Compactor._merged

    def late(self: compactor.Compactor, *arguments: object) -> object:
        with StateStore.open(path, options=Options(auto_compact=False, retain=1)) as job:
            job.advance_watermark(START_US + 3600 * SECOND_US)
            job.snapshot_epoch(SMALL + 1)
            job.snapshot_epoch(SMALL + 2)
        return merged(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compactor.Compactor, "_merged", late)
    result = run("compact", path)
    assert (result.code, result.err) == (0, "")
    assert "merged 1 merge" in on_one_line(result.out)
    assert one_more_epoch(path, SMALL + 3) == [0]
    assert run("verify", path).code == 0


def test_nothing_to_do_is_said(run: Run, tmp_path: Path) -> None:
    with StateStore.open(tmp_path / "new", sides=[ADS], options=OPTIONS):
        pass
    result = run("compact", tmp_path / "new")
    assert (result.code, result.err) == (0, "")
    assert "OK nothing to do" in on_one_line(result.out)
    assert "next epoch" not in result.out
    join = JoinHome(tmp_path / "home")
    join.epoch(1, partitions=[0])  # not complete
    for path in (join.path, join.partition(0)):
        assert "OK nothing to do" in on_one_line(run("compact", path).out)
    assert run("compact", join.path, "--json").json["states"] == []


def test_all_partitions_of_a_join_are_compacted(run: Run, join: JoinHome) -> None:
    before = [rows_of(read_state(join.path, side=side).to_batches()) for side in ("left", "right")]
    result = run("compact", join.path, "--major")
    assert (result.code, result.err) == (0, "")
    for words in (f"Join in {join.path}", "p-00000", "p-00001", "p-00002", "left: 15 -> "):
        assert words in on_one_line(result.out)
    join.epoch(JOIN_LAST + 1, sides=())
    told = run("inspect", join.path, "--json").json
    assert told["sides"][0]["runs"] < 15
    assert rows_of(read_state(join.path, side="left").to_batches()) == before[0]
    assert set(rows_of(read_state(join.path, side="right").to_batches())) <= set(before[1])  # the watermark moved
    assert run("verify", join.path).code == 0


def test_partition_of_a_join_is_compacted_at_the_epoch_that_counts(run: Run, join: JoinHome) -> None:
    result = run("compact", join.partition(1), "--major")
    assert result.code == 0
    assert "left: 5 -> " in on_one_line(result.out)
    told = f"leave it to the join, and see lsmstate compact {join.path}"
    assert "".join(told.split()) in "".join(result.out.split())  # a long path is folded
    (state,) = run("compact", join.partition(1), "--json").json["states"]
    assert state["path"] == str(join.partition(1))
    stray = run("compact", join.path / "p-00009")
    assert (stray.code, stray.out) == (2, "")


def test_query_that_went_on_between_partitions_is_followed(
    run: Run, join: JoinHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted, seen = compact._Work._compacted, list[str]()

    def late(self: compact._Work, path: str, opened: StateStore) -> object:
        told = compacted(self, path, opened)
        if not seen:
            for epoch in range(JOIN_LAST + 1, JOIN_LAST + 5):
                join.epoch(epoch)
        seen.append(path)
        return told

    monkeypatch.setattr(compact._Work, "_compacted", late)
    result = run("compact", join.path, "--major", "--json")
    assert (result.code, result.err) == (0, "")
    assert seen == [str(join.partition(number)) for number in range(3)]
    assert result.json["states"][2]["runs_before"][0] == JOIN_LAST + 4
    monkeypatch.undo()
    join.epoch(JOIN_LAST + 5)
    assert run("verify", join.path).code == 0


def test_state_that_is_always_retired_is_given_up_with_one_line(
    run: Run, small: Path, join: JoinHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateStore, "snapshot", mock.Mock(side_effect=SnapshotExpired("retired")))
    for path in (small, join.path):
        assert run("compact", path) == Result(2, "", "lsmstate: retired\n")


def test_other_process_that_compacts_is_left_to_it(run: Run, small: Path, join: JoinHome) -> None:
    for path, where in ((small, small), (join.path, join.partition(1))):
        lock = LocalFileSystem().lock(f"{where}/{names.COMPACTION_LOCK}")
        assert lock is not None
        files = sorted((where / "sst").iterdir())
        result = run("compact", path, "--major")
        assert (result.code, result.err) == (0, "")
        assert "another process is compacting" in on_one_line(result.out)
        assert "nothing to do" not in result.out
        assert sorted((where / "sst").iterdir()) == files
        assert any(state["busy"] for state in run("compact", path, "--json").json["states"])
        lock.release()
    assert "1 merge" in on_one_line(run("compact", small, "--major").out)


def test_other_process_that_was_faster_by_a_moment_is_seen(
    run: Run, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = []
    monkeypatch.setattr(
        StateStore, "compact", lambda *_, **__: locks.append(LocalFileSystem().lock(f"{small}/compacting"))
    )
    result = run("compact", small)
    locks[0].release()
    assert "another process is compacting" in on_one_line(result.out)


@pytest.mark.parametrize("what", ["nothing", "file", "empty", "foreign"])
def test_what_is_not_a_state_is_exit_code_2_and_stays_as_it_is(run: Run, tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "file":
        path.write_text("")
    elif what != "nothing":
        path.mkdir()
    if what == "foreign":
        (path / "letter").write_text("")
    before = tree(tmp_path)
    result = run("compact", path)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"lsmstate: {path}: ")
    assert result.err.count("\n") == 1
    assert tree(tmp_path) == before


@pytest.mark.parametrize("way", ["flipped", "missing"])
def test_damage_is_exit_code_1_with_advice(run: Run, small: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    file = min((small / "sst").iterdir())
    if way == "flipped":
        damage(file, 500)
    else:
        file.unlink()
    result = run("compact", small)
    assert result.code == 1
    for words in ("DAMAGED", file.name, f"lsmstate verify {small}"):
        assert words in on_one_line(result.out)
    told = run("compact", small, "--major", "--json")
    assert told.code == 1
    assert file.name in told.json["states"][0]["error"]
    (problem,) = run("verify", small, "--json").json["problems"]
    assert problem["path"] == str(file)


def test_hostile_file_ends_in_a_word_not_in_a_traceback(run: Run, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor, "merged_runs", mock.Mock(side_effect=IndexError))
    result = run("compact", small)
    assert result.code == 1
    assert "DAMAGED the merge ends in IndexError" in on_one_line(result.out)


def test_interrupt_is_exit_code_130_and_leaves_the_state_sound(
    run: Run, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor, "write_sstable", mock.Mock(side_effect=KeyboardInterrupt))
    before = rows(small)
    result = run("compact", small)
    assert (result.code, result.out, result.err) == (130, "", "")
    assert list((small / "merges").iterdir()) == []
    assert run("verify", small).code == 0
    monkeypatch.undo()
    assert run("compact", small).code == 0
    assert one_more_epoch(small, SMALL + 1) == [1, 1]
    assert rows(small) == before


def test_json_has_the_documented_parts(run: Run, small: Path) -> None:
    told = run("compact", small, "--json").json
    (file,) = (small / "sst").glob(f"{SMALL + 1:012d}-*")
    (state,) = told.pop("states")
    assert told == {"schema": "lsmstate.compact/1", "path": str(small), "major": False}
    counted = {"merges": 1, "rows": SMALL * 20, "bytes": file.stat().st_size, "busy": False, "error": None}
    runs = {"sides": ["ads", "clicks"], "runs_before": [SMALL, SMALL], "runs_after": [1, 1]}
    assert state == {"path": str(small), **counted, **runs}


def test_terminal_sees_what_is_merged(run: Run, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    assert run("compact", small).code == 0
    assert "many small runs; 1,000 values written" in screen.err.getvalue()
