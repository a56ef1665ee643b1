"""What is kept of a state that was taken back, and what is seen of it: the new line, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsmstate import EpochError, StateStore, read_state
from lsmstate.join.asking import why
from lsmstate.join.barrier import epochs_begun, epochs_left_behind, moves_on, read_barrier
from lsmstate.join.history import history_of
from lsmstate.join.lines import FIRST, newest_line
from lsmstate.join.pace import Pace
from lsmstate.join.reading import state_at
from lsmstate.join.restore import restore
from tests.support.join_home import JoinHome, join_spec
from tests.support.lines import LAST, go_on, keys, problems


def names(join: JoinHome, kind: str) -> set[str]:
    return {path.name[:19] for path in join.path.glob(f"p-*/{kind}/*-*")}


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
