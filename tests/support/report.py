"""Writes docs/reliability.md from the figures of runs: `python -m tests.support.report DIRECTORY`.

The directory holds what runs left there (tests/support/figures.py), one document each. What stands between the two
marks of the document is kept by hand, and comes back as it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.planted.defects import DEFECTS
from tests.support.figures import lines_of
from tests.support.sizes import table

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- by hand: begin -->", "<!-- by hand: end -->"
EMPTY = "\nNothing is told here yet.\n"
INTRODUCTION = """# Reliability: what was tried, and what came of it

Made by `make reliability` from the figures that the tests print when they end; what was tried by hand is kept by hand.
[GUARANTEES.md](GUARANTEES.md) names the test behind each promise. The invariant of every test: the correct answer, or
one documented error. Never wrong rows, never an end of rows that is not told, never a hang.
"""
SIZES = """## How much each run does

`make test` is the default run, `make test-full` the full one, `make soak` the soak of two hours, and
`make test-endless` all sizes of the last column. Minutes are computed from what one of each was measured to take, not
from a run of the whole, and Spark's are estimates; where nothing is told, the time is part of another line, or of the
rest of the tests, which takes a quarter of an hour more. A size of `which one` is a stride: 1 is everything.
"""


def read_runs(directory: Path) -> dict[str, dict[str, Any]]:
    """The documents of the runs, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}


def by_hand(text: str) -> str:
    """What is kept between the marks. Raises ValueError if they are damaged, so that nothing is lost."""
    if not text:
        return EMPTY
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{BEGIN} and {END} must each stand in the document once; bring them back")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def section(name: str, run: dict[str, Any]) -> str:
    """One run: when, where, how much, and its figures."""
    versions = ", ".join(f"{what} {number}" for what, number in sorted(run["versions"].items()))
    lines = [f"## Run `{name}`", "", f"{run['date']}, size {run['size']}, {run['cores']} cores; {versions}."]
    if "tests" in run:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in run["tests"].items())
        lines += ["", f"Tests: {counts}."]
    return "\n".join([*lines, "", *(f"- {line}" for line in lines_of(run["figures"]))])


def planted() -> str:
    """The defects that are planted on purpose, and the tests that have to catch them."""
    lines = [
        "## Defects planted on purpose",
        "",
        "`make planted` changes a copy of the source, one defect at a time, and runs the tests named here, which must",
        "fail. Mistakes in the protocols of crashes, logs and checkpoints are seeded by every test run, and counted",
        "above.",
        "",
        "| where | defect | caught by |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {d.where} | {name} | `{d.tests[0]}` |" for name, d in DEFECTS.items())])


def document(runs: dict[str, dict[str, Any]], kept: str) -> str:
    """The whole document."""
    parts = [INTRODUCTION.rstrip(), *(section(name, run) for name, run in runs.items()), planted()]
    parts += [f"{SIZES}\n{table()}", f"## What was tried by hand\n\n{BEGIN}{kept}{END}"]
    return "\n\n".join(parts) + "\n"


def main(directory: str) -> int:
    runs = read_runs(Path(directory))
    if not runs:
        sys.stderr.write(f"{directory}: no figures; run tests with LSMSTATE_TEST_FIGURES={directory} first\n")
        return 1
    TARGET.write_text(document(runs, by_hand(TARGET.read_text() if TARGET.exists() else "")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
