"""Lines: a state taken back to an epoch goes on from there, and what came after it is left behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lsmstate import CorruptionError, EpochError, FencedError, LsmStateError, StateStore, read_state
from lsmstate.join import restore as restoring
from lsmstate.join.asking import why
from lsmstate.join.barrier import epochs_begun, epochs_left_behind, moves_on, read_barrier
from lsmstate.join.candidates import candidates_of
from lsmstate.join.history import history_of
from lsmstate.join.home import Home
from lsmstate.join.lines import FIRST, newest_line, read_line
from lsmstate.join.pace import Pace
from lsmstate.join.reading import job_of, state_at
from lsmstate.join.restore import restore
from lsmstate.join.runs import enter_run, read_run
from lsmstate.join.verify import verify
from tests.support.join_home import QUERY, ROWS, RUN, JoinHome, join_spec, rewrite
from tests.support.simfs import SimFileSystem

LAST = 5  # with three epochs retained: 3 to 5 can be read


@pytest.fixture
def join(tmp_path: Path) -> JoinHome:
    return JoinHome(tmp_path / "home").epochs(LAST)


def go_on(join: JoinHome, query: str = "query-2") -> JoinHome:
    """Another query on the newest line."""
    return JoinHome(join.path, join.spec, query=query)


def keys(join: JoinHome, epoch: int | None = None) -> set[int]:
    return {n // 1000 for n in read_state(join.path, epoch=epoch).column(0).to_pylist()}


def problems(join: JoinHome) -> list[str]:
    return [str(problem) for problem in verify(join.home, job_of(join.home), lambda *_: None).problems]


def names(join: JoinHome, kind: str) -> set[str]:
    return {path.name[:19] for path in join.path.glob(f"p-*/{kind}/*-*")}


# ---- going on


def test_line_is_told_by_its_document(join: JoinHome) -> None:
    chosen = state_at(join.home.fs, str(join.path), 4).candidates
    line = restore(join.home, 4, "a bad deployment")
    assert (line.number, line.before, line.epoch, line.base, line.min_epoch) == (2, FIRST, 4, 4, 3)
    assert (line.parents, line.queries, line.why) == (chosen, (QUERY,), "a bad deployment")
    assert newest_line(join.home) == read_line(join.home, 2) == line


def test_new_query_goes_on_after_the_epoch_with_its_candidates_as_parents(join: JoinHome) -> None:
    line = restore(join.home, 3, "test")
    new = go_on(join)
    assert (new.run.number, new.run.line, new.run.epoch(0)) == (2, line, 4)
    barrier = new.barrier(4)
    assert (barrier.line, barrier.parent_epoch, barrier.parents, barrier.min_epoch) == (2, 3, line.parents, 3)
    new.epoch(4)
    assert new.barrier(5).line == 2
    assert {name[13:19] for name in new.barrier(5).parents} == {"000002"}


def test_watermark_and_newest_times_go_on_as_they_would_have(join: JoinHome, tmp_path: Path) -> None:
    restore(join.home, 3, "test")
    alone = JoinHome(tmp_path / "other").epochs(3)
    for told, expected in ((go_on(join).barrier(4), alone.barrier(4)),):
        same = ("epoch", "late_watermark", "watermark", "seen", "idle", "newest", "parent_epoch")
        assert [getattr(told, name) for name in same] == [getattr(expected, name) for name in same]


def test_rows_are_those_of_a_history_that_never_went_further(join: JoinHome) -> None:
    restore(join.home, 3, "test")
    assert keys(join) == {1, 2, 3}
    new = go_on(join)
    for epoch, told in ((4, 14), (5, 15), (6, 16)):
        for partition in range(3):
            new.task(epoch, partition, new.rows(0, told), new.rows(1, told))
        assert keys(join) == {1, 2, 3, *range(14, told + 1)}
        assert problems(join) == []
    assert keys(join, 4) == {1, 2, 3, 14}


def test_candidate_that_counts_is_the_one_that_the_line_starts_with(join: JoinHome) -> None:
    chosen = restore(join.home, 4, "test").parents
    for partition in range(3):  # tasks of the old run that come too late
        with pytest.raises(FencedError, match="taken back to epoch 4 while epoch 4 of line 1 was under way"):
            join.task(4, partition, join.rows(0, 9), join.rows(1, 9))
    assert state_at(join.home.fs, str(join.path), None).candidates == chosen
    assert go_on(join).barrier(5).parents == chosen
    assert [len(candidates_of(join.home, 0, 4)[0]), len(candidates_of(join.home, 0, 4, FIRST)[0])] == [1, 2]


def test_newest_epoch_can_be_restored_too_where_the_checkpoint_was_lost(join: JoinHome) -> None:
    restore(join.home, LAST, "the checkpoint is gone")
    assert go_on(join).epoch(LAST + 1)
    assert keys(join) == set(range(1, LAST + 2))


def test_line_of_a_line_starts_where_its_epoch_was_written(join: JoinHome) -> None:
    restore(join.home, 4, "test")
    second = go_on(join)
    second.epoch(5)
    second.epoch(6)
    third = restore(join.home, 5, "again")
    assert third.before is not None
    assert (third.number, third.before.number, [line.number for line in third.chain()]) == (3, 2, [3, 2, 1])
    fourth = restore(join.home, 4, "and further back")
    assert fourth.before == FIRST
    assert (fourth.number, fourth.queries) == (4, (QUERY, "query-2"))
    new = go_on(join, "query-3")
    new.epoch(5)
    assert read_run(join.home, new.run.number)["line"] == 4
    assert epochs_left_behind(join.home, newest_line(join.home)) == {1: [5], 2: [5, 6]}
    assert problems(join) == []


def test_line_that_nobody_has_worked_on_is_not_made_twice(join: JoinHome) -> None:
    line = restore(join.home, 4, "test")
    assert restore(join.home, 4, "once more") == line
    assert restore(join.home, 3, "further").number == 3
    go_on(join)
    assert restore(join.home, 3, "its query has begun").number == 4


def test_state_made_before_there_were_lines_goes_on_and_can_be_taken_back(tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home").epochs(3)
    for name in ("lines", "locks"):
        for path in (join.path / name).iterdir():
            path.unlink()
        (join.path / name).rmdir()
    rewrite(join.path / "runs/00000001")
    document = join.path / "runs/00000001"
    assert json.loads(document.read_bytes().partition(b"\n")[2])["line"] == 1
    data = {"query": QUERY, "run": RUN}
    document.unlink()
    join.home.publish("runs", "00000001", data)
    assert enter_run(join.home, QUERY, RUN, 3).line == FIRST
    join.epoch(4)
    assert restore(join.home, 3, "test").number == 2
    assert keys(join) == {1, 2, 3}


# ---- who may go on


@pytest.mark.parametrize("run", [RUN, "another run"])
def test_old_query_is_fenced_whichever_run_of_it_comes(join: JoinHome, run: str) -> None:
    restore(join.home, 4, "test")
    for batch in (0, LAST, LAST + 7):
        with pytest.raises(FencedError, match=r"taken back to epoch 4.* line 2; query query-1 worked on an older line"):
            enter_run(join.home, QUERY, run, batch)
    go_on(join).epoch(5)
    with pytest.raises(FencedError, match="new checkpointLocation"):
        enter_run(join.home, QUERY, run, LAST)


def test_query_of_two_lines_ago_is_still_fenced(join: JoinHome) -> None:
    restore(join.home, 4, "test")
    go_on(join).epoch(5)
    restore(join.home, 5, "test")
    for query in (QUERY, "query-2"):
        with pytest.raises(FencedError, match="line 3"):
            enter_run(join.home, query, "any", 0)
    assert enter_run(join.home, "query-3", "any", 0).epoch(0) == 6


def test_query_that_is_not_new_is_not_admitted_to_a_new_line(join: JoinHome) -> None:
    restore(join.home, 4, "test")
    with pytest.raises(LsmStateError, match=r"goes on with batch 0 of a new query; this one is at batch 3"):
        enter_run(join.home, "query-2", "run", 3)


def test_second_new_query_is_refused(join: JoinHome) -> None:
    restore(join.home, 4, "test")
    go_on(join)
    with pytest.raises(LsmStateError, match=r"belongs to query query-2.* `lsmstate restore`"):
        enter_run(join.home, "query-3", "run", 0)


def test_task_that_was_under_way_is_fenced_when_it_ends(join: JoinHome) -> None:
    join.barrier(6)
    restore(join.home, 4, "test")
    with pytest.raises(FencedError, match="while epoch 6 of line 1 was under way"):
        join.epoch(6)
    assert keys(join) == {1, 2, 3, 4}
    assert keys(go_on(join)) == {1, 2, 3, 4}


def test_task_that_retires_while_a_line_is_made_does_not(join: JoinHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line starts from epoch 3; the task of epoch 6 would retire it."""
    real = Home.publish
    done = threading.Event()

    def publish(home: Home, directory: str, name: str, body: dict[str, object]) -> bool:
        if directory == "lines":  # a task ends just now
            monkeypatch.setattr(Home, "publish", real)
            with pytest.raises(AssertionError):
                join.epoch(6, partitions=[0])
            done.set()
        return real(home, directory, name, body)

    monkeypatch.setattr(Home, "publish", publish)
    restore(join.home, 3, "test")
    assert done.is_set()
    assert keys(join) == {1, 2, 3}


def test_restore_waits_for_a_task_that_retires_and_gives_up_in_the_end(join: JoinHome) -> None:
    lock = join.home.lock(1)
    assert lock is not None
    waited: list[float] = []
    with pytest.raises(EpochError, match="a task keeps partition 1 locked; stop the query"):
        restore(join.home, 4, "test", sleep=waited.append)
    assert len(waited) > 100
    waits = iter([None, None])

    def sleep(_: float) -> None:
        if next(waits, 0) == 0:
            lock.release()

    assert restore(join.home, 4, "test", sleep=sleep).number == 2


# ---- what is kept


def test_nothing_that_the_new_line_needs_is_retired_and_what_is_left_behind_goes_in_time(join: JoinHome) -> None:
    restore(join.home, 3, "test")
    left = {name for kind in ("manifest", "sst") for name in names(join, kind) if name[13:] == "000001"}
    assert any(int(name[:12]) > 3 for name in left)
    new = go_on(join)
    for epoch in range(4, 12):
        new.epoch(epoch)
        assert problems(join) == []
        assert keys(join) == set(range(1, epoch + 1))
        first = history_of(join.home, 3).first
        assert first == max(3, epoch - 2)
        assert all(barrier.line == (1 if e <= 3 else 2) for e, barrier in history_of(join.home, 3).barriers.items())
    now = names(join, "manifest")
    assert not {name for name in now if name[13:] == "000001" and int(name[:12]) > 3}  # all that was left behind
    files = {file for number in range(3) for file in _files(join, number)}
    on_disk = {path.name for path in join.path.glob("p-*/sst/*")}
    assert on_disk == files
    assert epochs_left_behind(join.home, newest_line(join.home)) == {}


def _files(join: JoinHome, partition: int) -> set[str]:
    found: set[str] = set()
    for epoch in history_of(join.home, 3).readable:
        with state_at(join.home.fs, str(join.path), epoch).partition(partition) as store:
            found |= set(store._core.head.version.files)
    return found


def test_merge_of_the_old_line_is_not_adopted_where_it_has_retired_more(tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home", join_spec(str(tmp_path / "home"), upper_s=60)).epochs(LAST)
    for partition in range(3):
        state = state_at(join.home.fs, str(join.path), LAST)
        sides, path = join.spec.shape.state_sides, join.home.partition(partition)
        with StateStore.open_candidate(path, state.candidates[partition], sides, fs=join.home.fs) as store:
            store.compact(major=True)
    alone = JoinHome(tmp_path / "alone", join_spec(str(tmp_path / "alone"), upper_s=60)).epochs(4)
    restore(join.home, 3, "test")
    go_on(join).epoch(4)
    for side in ("left", "right"):
        mine, theirs = (read_state(home.path, side=side).sort_by([(f, "ascending") for f in _keys(home, side)])
                        for home in (join, alone))  # fmt: skip
        assert mine.equals(theirs)
    assert problems(join) == []


def _keys(join: JoinHome, side: str) -> list[str]:
    return list(join.spec.sides[("left", "right").index(side)].schema.names[:2])


# ---- who looks at it


def test_all_who_look_follow_the_newest_line(join: JoinHome) -> None:
    restore(join.home, 3, "test")
    history = history_of(join.home, 3)
    assert (history.readable, history.begun, history.left_behind) == ([3], [3], {1: [4, 5]})
    assert (history.under_way, epochs_begun(join.home)) == (None, [3])
    assert moves_on(join.home, 3, Pace((0, 0)))
    assert why(join.path, "left", 3001).epoch == 3
    assert why(join.path, "left", 4001).rows == ()
    with pytest.raises(
        EpochError, match="epoch 4 was left behind with line 1, when the state was taken back to epoch 3"
    ):
        read_state(join.path, epoch=4)
    new = go_on(join)
    new.epoch(4, partitions=[0])
    history = history_of(join.home, 3)
    assert history.under_way is not None
    assert (history.under_way.epoch, history.under_way.line, history.readable) == (4, 2, [3])
    assert read_barrier(join.home, 4, FIRST) != read_barrier(join.home, 4)


def test_epoch_that_cannot_be_read_cannot_be_restored(join: JoinHome) -> None:
    for epoch in (0, 2, 6):
        with pytest.raises(EpochError, match=f"epoch {epoch} does not exist, or was retired; .* 3, 4, 5"):
            restore(join.home, epoch, "test")
    join.epoch(6, partitions=[0])
    with pytest.raises(EpochError, match="epoch 6 is not complete"):
        restore(join.home, 6, "test")
    assert newest_line(join.home) == FIRST


def test_epoch_whose_files_are_missing_is_not_restored(join: JoinHome) -> None:
    join.sstable(1, 4).unlink()
    with pytest.raises(CorruptionError, match="a file of epoch 4"):
        restore(join.home, 4, "test")
    assert restore(join.home, 3, "test").epoch == 3


# ---- damage


def test_damaged_or_lost_line_is_never_passed_over(join: JoinHome) -> None:
    restore(join.home, 4, "test")
    new = go_on(join)
    new.epoch(5)
    path = join.path / "lines/000002"
    sound = path.read_bytes()
    body = json.loads(sound.partition(b"\n")[2])
    for change in ({"epoch": 3}, {"line": 2}, {"parents": []}, {"base": 9}, {"queries": [1]}, {"why": None}):
        rewrite(path, **change)
        assert body.keys() >= change.keys()
        with pytest.raises(CorruptionError, match="lines/000002"):
            newest_line(join.home)
        assert any("lines/000002" in problem for problem in problems(join))
        path.write_bytes(sound)
    path.unlink()
    with pytest.raises(CorruptionError, match="the line that run 2 works on"):
        enter_run(join.home, "query-2", "any", 1)
    assert any("a line that is not there" in problem for problem in problems(join))


@contextmanager
def crashing(fs: SimFileSystem, at: str) -> Iterator[None]:
    """Whoever restores dies in the middle."""
    real = getattr(SimFileSystem, at)
    with pytest.MonkeyPatch.context() as patch:

        def die(self: SimFileSystem, *arguments: str) -> None:
            if any("/lines" in argument for argument in arguments):
                raise KeyboardInterrupt
            return real(self, *arguments)

        patch.setattr(SimFileSystem, at, die)
        yield


@pytest.mark.parametrize(("at", "number"), [("link", 1), ("sync_dir", 2)])
def test_restore_that_dies_has_made_the_line_or_has_not(at: str, number: int) -> None:
    fs = SimFileSystem()
    join = JoinHome("/state/home", fs=fs).epochs(4)
    with crashing(fs, at), pytest.raises(KeyboardInterrupt):
        restore(join.home, 3, "test")
    assert newest_line(join.home).number == number
    assert restore(join.home, 3, "test").number == 2
    new = JoinHome("/state/home", join.spec, fs=fs, query="query-2")
    assert new.barrier(4).parents == newest_line(join.home).parents


def test_two_restores_at_once_make_one_line_each_or_one_gives_up(join: JoinHome) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restoring, "line_name", lambda number: "000002")
        assert restore(join.home, 3, "one").number == 2
        patch.setattr(restoring, "_is_used", lambda *_: True)
        patch.setattr(restoring, "history_of", lambda *_: replace(history_of(join.home, 3), line=FIRST))
        with pytest.raises(FencedError, match="another restore was faster"):
            restore(join.home, 3, "other")


def test_rows_of_the_join_count(join: JoinHome) -> None:
    restore(join.home, 3, "test")
    table = read_state(join.path)
    assert isinstance(table, pa.Table)
    assert table.num_rows == 3 * ROWS
