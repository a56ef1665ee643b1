"""The report of reliability: made from what runs leave behind, and what is kept by hand stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.figures import FIGURES_ENV, write_figures
from tests.support.report import BEGIN, END, by_hand, document, read_runs
from tests.support.sizes import ENV, SIZES, size

FIGURES = {"kills survived": [1200], "seeded bugs caught: {} of {}": [12, 12]}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FIGURES_ENV, str(tmp_path / "runs"))
    monkeypatch.setenv(ENV, "0.5")
    write_figures(FIGURES, "tests", tests={"passed": 7, "failed": 0})
    write_figures({}, "planted")
    return tmp_path / "runs"


def test_report_tells_figures_of_every_run_where_and_how_large(runs: Path) -> None:
    text = document(read_runs(runs), "\n")
    assert "- kills survived: 1,200\n- seeded bugs caught: 12 of 12\n" in text
    assert "## Run `planted`" in text
    assert "size 0.5," in text
    assert "cores; " in text
    assert "pyarrow " in text
    assert "Tests: 0 failed, 7 passed." in text


def test_what_is_kept_by_hand_comes_back_as_it_was(runs: Path) -> None:
    told = "\n- a cable was pulled\n"
    before = document(read_runs(runs), told)
    assert by_hand(before) == told
    assert document(read_runs(runs), by_hand(before)) == before


@pytest.mark.parametrize("damaged", [f"{END} {BEGIN}", BEGIN, f"{BEGIN} {BEGIN} {END}"])
def test_damaged_marks_are_refused_so_that_nothing_is_lost(damaged: str) -> None:
    with pytest.raises(ValueError, match="bring them back"):
        by_hand(damaged)


def test_no_figures_are_written_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FIGURES_ENV, raising=False)
    monkeypatch.chdir(tmp_path)
    write_figures(FIGURES, "tests")
    assert list(tmp_path.iterdir()) == []


def test_sizes_go_up_from_default_to_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, told in SIZES.items():
        found = []
        for run in ("default", "full", "endless"):
            monkeypatch.setenv(ENV, run)
            found.append(size(name))
        if not told.every:
            assert found == sorted(found), name


def test_part_of_the_full_sizes_can_be_run_and_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV, "0.05")
    assert size("state_machine_steps") == SIZES["state_machine_steps"].full
    assert size("kills") == round(SIZES["kills"].full * 0.05)
    assert size("held_every") == SIZES["held_every"].full
    for nonsense in ("huge", "0", "2", "-1", "nan"):
        monkeypatch.setenv(ENV, nonsense)
        with pytest.raises(ValueError, match="part of full"):
            size("kills")
