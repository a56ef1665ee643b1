"""A state that cannot be taken back, or whose line is damaged: it is said, and nothing is passed over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lsmstate import CorruptionError, EpochError
from lsmstate.join.lines import FIRST, newest_line
from lsmstate.join.restore import restore
from lsmstate.join.runs import enter_run
from tests.support.join_home import JoinHome, rewrite
from tests.support.lines import go_on, problems
from tests.support.simfs import SimFileSystem


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
