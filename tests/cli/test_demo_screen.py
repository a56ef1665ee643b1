"""What `lsmstate demo` shows while it runs: a panel on a terminal, lines elsewhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from iopool import LocalFileSystem
from lsmstate.cli.demo import introduce
from lsmstate.cli.demo_screen import chart, evicted, panel, rate, watch
from lsmstate.spark.demo import WITHIN_S
from lsmstate.spark.demo_feed import FILES_A_SECOND
from lsmstate.spark.demo_rows import FILE_ROWS, FILE_US
from tests.support.demo_job import FakeJob, epoch, look


def shown(width: int, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, force_terminal=terminal, color_system=None, markup=False), out


def test_panel_tells_the_figures_of_the_job() -> None:
    console, out = shown(80, terminal=True)
    console.print(panel(look("joining", 20)))
    lines = out.getvalue().splitlines()
    assert all(len(line) == 80 for line in lines)
    told = [line.strip("│ ").split() for line in lines if line.startswith("│")]
    facts = {row[0]: " ".join(row) for row in told if row}
    assert "1,200,000 impressions, 800,000 clicks" in facts["fed"]
    assert "125,000 in epoch 20" in facts["rows/s"]
    assert "600,000 rows in all" in facts["joined"]
    assert any("180,000 impressions, 120,000 clicks wait" in line for line in lines)
    assert any("3.0 MiB in 6 files" in line for line in lines)
    assert "1,700,000 rows" in facts["evicted"]
    assert any("100 ms by lsmstate, in a batch of 800 ms" in line for line in lines)
    assert "2026-01-01T00:03:30Z" in facts["watermark"]
    assert "1:01 elapsed" in lines[-1]


@pytest.mark.parametrize("phase", ["starting", "joining"])
def test_panel_stands_before_the_first_epoch(phase: str) -> None:
    console, out = shown(80, terminal=True)
    console.print(panel(look(phase)))  # type: ignore[arg-type]
    assert "Spark" in out.getvalue()
    assert "none yet" in out.getvalue()


@pytest.mark.parametrize("width", [20, 50, 200])
def test_panel_keeps_within_any_terminal(width: int) -> None:
    console, out = shown(width, terminal=True)
    console.print(panel(look("joining", 20)))
    assert all(len(line) <= width for line in out.getvalue().splitlines())


def test_terminal_shows_the_job_to_its_end(tmp_path: Path) -> None:
    console, out = shown(80, terminal=True)
    last = watch(console, FakeJob(LocalFileSystem(), str(tmp_path), 1))
    assert last.phase == "ended"
    assert "lsmstate demo: all joined" in out.getvalue()


def test_elsewhere_a_line_for_every_few_epochs_and_the_last(tmp_path: Path) -> None:
    console, out = shown(120, terminal=False)
    watch(console, FakeJob(LocalFileSystem(), str(tmp_path), 1))
    lines = out.getvalue().splitlines()
    assert lines[0] == "Spark is starting ..."
    assert lines[1].split()[:3] == ["epoch", "rows/s", "joined"]
    assert [line.split()[0] for line in lines[2:-1]] == ["1", "4", "7", "10", "13", "16", "19", "20"]
    assert lines[-2].split() == [
        *("20", "125,000", "600,000", "300,000", "1,700,000", "3.0", "MiB", "100", "800", "2026-01-01T00:03:30Z")
    ]
    assert lines[-1].startswith("Spark joins the same files once more")


def test_charts_scale_to_their_highest_value() -> None:
    assert chart([], "green").plain == ""
    assert chart([0, 0], "green").plain == "▁▁"
    assert chart([0, 5, 10], "green").plain == "▁▄▇"
    assert len(chart(range(1000), "green").plain) == 22


def test_rates_and_evictions_are_counted_from_the_epochs() -> None:
    assert rate(epoch(1)) == 125_000
    assert evicted([]) == 0
    assert evicted([epoch(number) for number in (1, 2, 3)]) == 0
    assert evicted([epoch(number) for number in (1, 2, 3, 4, 5)]) == 200_000


def test_what_the_introduction_says_is_true() -> None:
    console, out = shown(80, terminal=False)
    introduce(console, "state/demo/run-1")
    told = " ".join(out.getvalue().split())
    assert f"{FILES_A_SECOND * sum(FILE_ROWS):,} rows a second" in told
    assert f"within {WITHIN_S} s of being shown" in told
    assert FILES_A_SECOND * FILE_US == 10 * 1_000_000  # the panel: event time runs 10 times faster
    assert max(map(len, out.getvalue().splitlines())) <= 80
