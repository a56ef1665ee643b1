"""The picker: what it chooses, that it comes to an end, and that runs stay few over long lives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from compaction import RUNS_MAX, Choice, FileShape, Horizon, RunShape, Tree, is_mixed, pick
from compaction.picker import MIXED_MAX

KB = 1 << 10


def file(name: str, *runs: RunShape, kb: int = 1, removed: bool = False) -> FileShape:
    return FileShape(name, kb * KB, runs, removed)


def mixed(name: str, first: int, last: int, kb: int = 1, side: int = 0) -> FileShape:
    return file(name, RunShape(side, first, last, 100), kb=kb)


def test_few_fresh_files_are_left_alone() -> None:
    files = [mixed(f"f{n}", 10, 11) for n in range(MIXED_MAX)]
    assert pick(Tree(files, [Horizon(0, 5)])) is None


def test_settled_unit_is_gathered_out_of_all_files_that_hold_it() -> None:
    files = [mixed("a", 3, 6), mixed("b", 4, 7), mixed("c", 6, 8), mixed("old", 3, 3)]
    choice = pick(Tree(files, [Horizon(0, 5)]))
    assert choice == Choice("a unit of time has settled", ("a", "old"), 0, 3)


def test_units_before_the_first_living_one_are_not_gathered() -> None:
    assert pick(Tree([mixed("a", 1, 6)], [Horizon(4, 6)])) == Choice("a unit of time has settled", ("a",), 0, 4)
    assert pick(Tree([mixed("a", 1, 3)], [Horizon(4, 6)])) is None


def test_unit_of_one_file_is_left_alone_and_of_two_is_merged() -> None:
    assert pick(Tree([mixed("a", 3, 3)], [Horizon(0, 5)])) is None
    choice = pick(Tree([mixed("a", 3, 3), mixed("b", 3, 3)], [Horizon(0, 5)]))
    assert choice is not None
    assert (choice.files, choice.unit) == (("a", "b"), 3)


def test_unit_in_one_file_of_several_runs_is_whole() -> None:
    large = file("a", RunShape(0, 3, 3, 100), RunShape(0, 3, 3, 100))
    tree = Tree([large], [Horizon(0, 5)], rows_max=100)
    assert not is_mixed(tree, large)
    assert pick(tree) is None
    assert pick(tree, major=True) is None


def test_smallest_files_are_merged_and_with_them_those_that_are_no_larger_than_they_together() -> None:
    sizes = {"a": 1, "b": 1, "c": 2, "d": 4, "e": 9, **{f"z{n}": 1000 for n in range(MIXED_MAX)}}
    files = [mixed(name, 10, 11, kb) for name, kb in sizes.items()]
    choice = pick(Tree(files, [Horizon(0, 5)]))
    assert choice is not None
    assert choice.files == ("a", "b", "c", "d")
    assert choice.unit is None


def test_rows_that_never_age_are_merged_too() -> None:
    files = [mixed(f"f{n}", 0, 0) for n in range(MIXED_MAX + 1)]
    choice = pick(Tree(files, [None]))
    assert choice is not None
    assert len(choice.files) == MIXED_MAX + 1


def test_merge_that_would_leave_as_many_runs_is_not_made() -> None:
    files = [mixed(f"f{n}", 0, 0) for n in range(MIXED_MAX + 1)]
    assert pick(Tree(files, [None], rows_max=100)) is None


def test_major_compaction_ends_with_one_file_of_a_unit_and_one_of_the_rest_without_removed_rows() -> None:
    files = [mixed("a", 10, 11), mixed("b", 10, 12)]
    assert pick(Tree(files, [Horizon(0, 5)]), major=True) == Choice("all that is not settled", ("a", "b"))
    dirty = file("u", RunShape(0, 3, 3, 5), removed=True)
    assert pick(Tree([dirty, files[0]], [Horizon(0, 5)]), major=True) == Choice("it holds removed rows", ("u",))
    assert pick(Tree([files[0]], [Horizon(0, 5)]), major=True) is None


def test_half_dead_file_is_rewritten_only_where_it_pays() -> None:
    dying = FileShape("a", 100 * KB, (RunShape(0, 3, 3, 100),), dead_share=0.5)
    few = [mixed(f"u{n}", n, n, kb=100) for n in (4, 5)]
    assert pick(Tree([dying, *few], [Horizon(3, 9)])) == Choice("most of it is retired", ("a",))
    many = [mixed(f"u{n}", n, n, kb=100) for n in range(4, 20)]
    assert pick(Tree([dying, *many], [Horizon(3, 30)])) is None


@dataclass
class Life:
    """A side over many flushes, compacted after each; rows by unit for every file."""

    kept: int
    files: dict[str, Counter[int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    written: int = 0
    flushed: int = 0
    runs_max: int = 0

    def flush(self, rows: Counter[int], watermark: float) -> None:
        self._add(rows)
        self.flushed += rows.total()
        horizon = Horizon(int(watermark // 1) - self.kept, int(watermark // 1))
        for units in self.files.values():
            for unit in [unit for unit in units if unit < horizon.live]:
                del units[unit]
        self.files = {name: units for name, units in self.files.items() if units}
        while (choice := pick(self._tree(horizon))) is not None:
            self._carry_out(choice)
        self.runs_max = max(self.runs_max, len(self.files))

    def _tree(self, horizon: Horizon) -> Tree:
        files = [mixed(name, min(units), max(units), self.sizes[name]) for name, units in self.files.items()]
        return Tree(files, [horizon], 1 << 40)

    def _carry_out(self, choice: Choice) -> None:
        rows: Counter[int] = Counter()
        for name in choice.files:
            units = self.files[name]
            for unit in list(units):
                if choice.unit is None or unit <= choice.unit:
                    rows[unit] += units.pop(unit)
        self.files = {name: units for name, units in self.files.items() if units}
        self._add(rows)

    def _add(self, rows: Counter[int]) -> None:
        self.written += rows.total()
        name = f"{self.written:012d}-{len(self.sizes)}"
        self.files[name], self.sizes[name] = rows, rows.total()


@pytest.mark.parametrize(
    ("flushes_a_unit", "units", "disorder", "amplification"),
    [(6, 50, 0, 2.5), (4, 100, 8, 4.0), (2000, 4, 0, 7.0), (200, 40, 8, 6.5)],
)
def test_runs_stay_few_and_rows_are_seldom_rewritten(
    flushes_a_unit: int, units: int, disorder: int, amplification: float
) -> None:
    life = Life(kept=16)
    for flush in range(flushes_a_unit * units):
        now = flush / flushes_a_unit
        rows = Counter({unit: 10 for unit in range(int(now) - disorder, int(now) + 1)})
        life.flush(rows, now - disorder)
    assert life.runs_max <= RUNS_MAX - 2
    assert life.written / life.flushed <= amplification
