"""Lines: a state taken back to an epoch goes on from there, and what came after it is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsmstate import FencedError, read_state
from lsmstate.join.barrier import epochs_left_behind
from lsmstate.join.candidates import candidates_of
from lsmstate.join.lines import FIRST, newest_line, read_line
from lsmstate.join.reading import state_at
from lsmstate.join.restore import restore
from lsmstate.join.runs import enter_run, read_run
from tests.support.join_home import QUERY, ROWS, RUN, JoinHome, rewrite
from tests.support.lines import LAST, go_on, keys, problems


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


def test_rows_of_the_join_count(join: JoinHome) -> None:
    restore(join.home, 3, "test")
    table = read_state(join.path)
    assert isinstance(table, pa.Table)
    assert table.num_rows == 3 * ROWS
