"""What a verification says: its report, how it is shown, and the bar while it runs. For states and for joins."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from lsmstate.cli.progress import Line
from lsmstate.cli.terminal import fields, heading
from lsmstate.cli.wording import count_text, epochs_text, plainly
from lsmstate.engine.verify import Problem

_SHOWN = 5  # problems of one file


def report_of(
    path: str,
    opened: bool,
    epochs: list[int],
    whole: list[int],
    files: int,
    problems: list[Problem],
    advice: list[str],
) -> dict[str, Any]:
    """A report for machines; `show` makes words of it."""
    return {
        "schema": "lsmstate.verify/1",
        "path": path,
        "ok": not problems,
        "opened": opened,
        "epochs": epochs,
        "whole_epochs": whole,
        "files": files,
        "problems": [{"path": p.path, "what": plainly(p.what, p.path), "epochs": list(p.epochs)} for p in problems],
        "advice": advice,
    }


def show(out: Console, report: dict[str, Any]) -> None:
    """The report for people. That of a join has its job in it, its partitions, and the epoch under way."""
    join = "job" in report
    name = f" {report['job']}" if report.get("job") else ""
    heading(out, f"Join{name} in {report['path']}" if join else f"State {report['path']}")
    if report["ok"]:
        told = f"{epochs_text(report['epochs'])} in {count_text(report['files'], 'file')}, every byte of them"
        if join:
            told += f", and what holds {count_text(report['partitions'], 'partition')} together"
        if not report["epochs"]:
            told = "a new state: nothing was committed yet"
        pairs = [("checked", told), ("OK", "every checksum and every invariant holds")]
        if report.get("under_way") is not None:
            epoch, batch = report["under_way"], report["under_way_batch"]
            not_yet = f"epoch {epoch} (batch {batch}): some partitions have not finished it, so it was not checked"
            pairs.insert(1, ("not yet", not_yet))
        fields(out, pairs)
        return
    by_path: dict[str, list[dict[str, Any]]] = {}
    for problem in report["problems"]:
        by_path.setdefault(problem["path"], []).append(problem)
    opened = "" if report["opened"] else ", and the state cannot be opened"
    found = count_text(len(report["problems"]), "problem")
    fields(out, [("DAMAGED", f"{found} in {count_text(len(by_path), 'place')}{opened}")])
    for path, problems in by_path.items():
        heading(out, path)
        pairs = [("wrong", problem["what"]) for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            pairs.append(("", f"and {len(problems) - _SHOWN:,} more; --json lists all"))
        harmed = {epoch for problem in problems for epoch in problem["epochs"]}
        fields(out, [*pairs, ("harms", epochs_text(harmed))] if harmed else pairs)
    heading(out, "What to do")
    fields(out, [("whole", epochs_text(report["whole_epochs"])), *(("do", line) for line in report["advice"])])


class Counting(Line):
    """Counts files as they are checked, with a bar."""

    def __init__(self, unit: str = "files") -> None:
        columns = (TextColumn("checking", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
        super().__init__(*columns, begins=unit)
        self.files = 0

    def told(self, name: str, done: int, total: int) -> None:
        """What `StateStore.verify` calls before each file."""
        self.files = total
        self.show(done, total)

    def show(self, done: float, total: int) -> None:
        """Moves the bar."""
        self.update(completed=done, total=total)
