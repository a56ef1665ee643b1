"""Runs: which run of which query works in a home, and on which line.

Each run that has worked is a document, in order; the last one counts. A run that was replaced by a newer one, and a
query whose line was left behind, are fenced: they get FencedError, whenever they come back.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from lsmstate.errors import CorruptionError, FencedError, LsmStateError
from lsmstate.join.home import RUNS, Home
from lsmstate.join.lines import FIRST, Line, line_name, newest_line

_RUNS_KEPT = 100


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the query that works here: its number, and the line that it works on."""

    number: int
    line: Line

    def epoch(self, batch: int) -> int:
        """The epoch that a batch of Spark is."""
        return self.line.base + batch + 1


def enter_run(home: Home, query: str, run: str, batch: int) -> Run:
    """This run of the query; registers it if it is new.

    Raises FencedError if a newer run works here, or if the state was taken back since; and LsmStateError if another
    query does, or if the state does not belong to the checkpoint of this one.
    """
    while True:
        numbers = _numbers(home)
        line = newest_line(home)
        last = read_run(home, numbers[-1]) if numbers else None
        if last is not None and last["line"] > line.number:
            path = f"{home.path}/lines/{line_name(last['line'])}"
            raise CorruptionError(path, 0, f"the line that run {numbers[-1]} works on", "no such file")
        if query in line.queries:
            raise _left_behind(home, line, query)
        if last is None or last["line"] < line.number:
            if last is not None and last["query"] == query:
                raise _left_behind(home, line, query)
            _check_first(home, line, batch)
        elif last["query"] != query:
            raise LsmStateError(
                f"{home.path}: the state belongs to query {last['query']}, this is query {query}. Two queries "
                "cannot share a state. If the checkpoint was deleted: bring it back, or delete the state too, or go on "
                "from an epoch with `lsmstate restore`"
            )
        elif last["run"] == run:
            home.settle(RUNS)
            return Run(numbers[-1], line)
        elif any(read_run(home, number)["run"] == run for number in numbers[:-1]):
            raise FencedError(f"{home.path}: run {run} was replaced by run {last['run']} of the same query")
        number = numbers[-1] + 1 if numbers else 1
        if home.publish(RUNS, f"{number:08d}", {"query": query, "run": run, "line": line.number}):
            for old in numbers[:-_RUNS_KEPT]:
                home.remove(RUNS, f"{old:08d}")


def read_run(home: Home, number: int) -> dict[str, Any]:
    """What is known of a run: query, run and line. Those made before there were lines work on the first."""
    told = home.read(RUNS, f"{number:08d}") or {}
    line = told.get("line", FIRST.number)
    if type(line) is not int:
        raise CorruptionError(f"{home.path}/{RUNS}/{number:08d}", 0, "the number of a line", type(line).__name__)
    return {"query": told.get("query"), "run": told.get("run"), "line": line}


def queries_of(home: Home) -> tuple[str, ...]:
    """The queries that have worked here, as far as runs are kept."""
    try:
        numbers = home.numbers(RUNS)
    except FileNotFoundError:
        return ()
    return tuple(sorted({str(read_run(home, number)["query"]) for number in numbers}))


def _numbers(home: Home) -> list[int]:
    try:
        return home.numbers(RUNS)
    except FileNotFoundError:
        raise LsmStateError(
            f"{home.path}: is not there on host {platform.node()}: state= must name a directory that the driver, "
            "all executors and, with Spark Connect, the client share; or the state was deleted: then bring it back"
        ) from None


def _check_first(home: Home, line: Line, batch: int) -> None:
    if batch == 0:
        return
    if line.before is not None:
        raise LsmStateError(
            f"{home.path}: the state was taken back to epoch {line.epoch}, and goes on with batch 0 of a new query; "
            f"this one is at batch {batch}. Start the query with a new checkpointLocation"
        )
    raise LsmStateError(
        f"{home.path}: the state is new, but the query is at batch {batch}: the state was deleted or "
        "moved, or batches before were never evaluated (foreachBatch has to evaluate each). Bring the state "
        "back, or start the query with a new checkpointLocation"
    )


def _left_behind(home: Home, line: Line, query: str) -> FencedError:
    return FencedError(
        f"{home.path}: the state was taken back to epoch {line.epoch}, and goes on from there on line {line.number}; "
        f"query {query} worked on an older line, which is left behind, and cannot go on. Start a query with a new "
        "checkpointLocation, its sources from the offsets of that epoch (`lsmstate checkpoints` tells them)"
    )
