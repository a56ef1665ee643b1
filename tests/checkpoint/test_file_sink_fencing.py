"""The file sink beside another that takes its place at every operation."""

from __future__ import annotations

from typing import Any

import pytest

from lsmstate.checkpoint.connect.file_sink import FileSink
from lsmstate.errors import FencedError
from tests.support.simfs import Fault, SimFileSystem
from tests.support.sink_story import JOB, batch, rows_on


@pytest.mark.parametrize("decided", [False, True])
def test_sink_that_wakes_up_after_another_has_taken_its_place_publishes_nothing(decided: bool) -> None:
    """The other one opens, commits and goes on in the middle of each operation of the first."""
    first, last = _span(decided)
    assert last - first > 3
    for at in range(first, last):
        fs = SimFileSystem()
        rows: list[int] = []
        fs.fault = _taken_over(fs, at, decided, rows)
        sink = FileSink("/out", fs=fs)
        sink.open(JOB, None)
        sink.write(batch(1))
        fenced = 0
        for step in (lambda: sink.pre_commit(1), lambda: sink.commit(1)):  # noqa: B023
            try:
                step()
            except FencedError:
                fenced += 1
        assert fenced or decided, at
        assert rows_on(fs) == rows, at
        third = FileSink("/out", fs=fs.spawn())
        third.open(JOB, 2)
        assert rows_on(fs) == rows, at
        for call in (lambda: sink.pre_commit(9), lambda: sink.commit(1)):  # noqa: B023
            with pytest.raises(FencedError):
                call()


def _taken_over(fs: SimFileSystem, at: int, decided: bool, rows: list[int]) -> Fault:
    """Another sink lives its whole life before an operation of the first one."""

    def fault(op: str, path: str, index: int) -> None:
        if index == at:
            rows.extend(_other(fs.spawn(), 1 if decided else 0))

    return fault


def _span(decided: bool) -> tuple[int, int]:
    """The operations of the first sink during which the other may come."""
    fs = SimFileSystem()
    sink = FileSink("/out", fs=fs)
    sink.open(JOB, None)
    sink.write(batch(1))
    before = fs.ops
    sink.pre_commit(1)
    between = fs.ops
    sink.commit(1)
    return (between, fs.ops) if decided else (before, between)


def _other(fs: Any, committed: int) -> list[int]:
    """A whole life of another sink; gives the rows that are then visible."""
    sink = FileSink("/out", fs=fs)
    sink.open(JOB, committed)
    before = [1] if committed else []
    assert rows_on(fs) == before
    for epoch in range(committed + 1, 3):
        if epoch == 2:  # epoch 1 may have no rows, so that only its number is there
            sink.write(batch(20))
        sink.pre_commit(epoch)
        sink.commit(epoch)
    return [*before, 20]
