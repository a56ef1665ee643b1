"""Damage to the state of a join, with marks and every type: the correct answer or one documented error, whoever reads.

Every byte in the endless run, every fourth in the full one; by default a few of every file. All readers
and tools are asked about each.
"""

from __future__ import annotations

import pytest

from lsmstate.engine import View
from tests.support.flips import SLICES, Flips
from tests.support.marked_store import MARKS, READERS, SIDES, build, open_store
from tests.support.simfs import SimFileSystem
from tests.support.sizes import size


@pytest.fixture(scope="module")
def fs() -> SimFileSystem:
    made = SimFileSystem()
    build(made)
    return made


@pytest.fixture(scope="module")
def flips(fs: SimFileSystem) -> Flips:
    return Flips(fs, open_store, READERS)


def rows(view: View, number: int) -> list[dict[str, object]]:
    return [row for batch in view.scan(number) for row in batch.to_pylist()]


def test_the_damaged_state_holds_marks_of_epochs_folded_ones_tombstones_and_late_rows(fs: SimFileSystem) -> None:
    with open_store(fs, read_only=True) as store:
        assert store.verify() == []
        first, second, third = map(store.at_epoch, store.epochs())
        for side, number in MARKS.items():
            assert [(row["unit"], row["epoch"]) for row in rows(first, number)] == [(0, 1), (0, 2)]
            (folded,) = rows(second, number)
            assert (folded["count"], folded["later"]) == (3, bytes([0, 1, 2]))
            assert folded in rows(third, number)
            assert len(rows(third, number)) == 2
            assert [len(rows(view, 2 + side)) for view in (first, second, third)] == [0, 1, 1]
        assert (len(rows(first, 0)), len(rows(second, 0))) == (7, 5)  # one was removed, one retired
        assert len(second._tombstones) == 3
        assert third._tombstones == ()  # a merge has taken them up
        for view in (first, second, third):
            view.close()
    assert len(SIDES[0].schema) > 40


@pytest.mark.parametrize("part", range(SLICES))
def test_flipped_bytes_under_marks_are_refused_or_harmless(part: int, flips: Flips, figures) -> None:
    flips.check_part(part, size("marked_bytes_every"), 1, figures, "marks")
