"""Who may go on after a state was taken back: one new query, and nobody of the line before."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from lsmstate import EpochError, FencedError, LsmStateError
from lsmstate.join import restore as restoring
from lsmstate.join.history import history_of
from lsmstate.join.home import Home
from lsmstate.join.lines import FIRST
from lsmstate.join.restore import restore
from lsmstate.join.runs import enter_run
from tests.support.join_home import QUERY, RUN, JoinHome
from tests.support.lines import LAST, go_on, keys


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


def test_two_restores_at_once_make_one_line_each_or_one_gives_up(join: JoinHome) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restoring, "line_name", lambda number: "000002")
        assert restore(join.home, 3, "one").number == 2
        patch.setattr(restoring, "_is_used", lambda *_: True)
        patch.setattr(restoring, "history_of", lambda *_: replace(history_of(join.home, 3), line=FIRST))
        with pytest.raises(FencedError, match="another restore was faster"):
            restore(join.home, 3, "other")
