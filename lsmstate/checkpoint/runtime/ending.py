"""The end of a run: all threads end, then what they worked on is closed; what a thread still works on is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from lsmstate.checkpoint.runtime.operator_task import OperatorTask
from lsmstate.checkpoint.runtime.source_task import SourceTask
from lsmstate.errors import CheckpointError

_JOIN_S = 30.0  # for all threads to end
_READ_S = 1.0  # for a source to come back from reading
Task = SourceTask | OperatorTask


class Ending:
    """stuck: tasks whose threads did not end. error: the first one that closing gave."""

    def __init__(self, name: str, sources: Sequence[SourceTask], tasks: Sequence[OperatorTask]) -> None:
        self.stuck: list[Task] = []
        self.error: Exception | None = None
        for source in sources:
            source.stop()
        for task in tasks:
            task.inbox.close()
        deadline = monotonic() + _JOIN_S
        for source in sources:
            if not source.join(_READ_S):  # it may wait for rows: closing wakes it
                self._close(source)
        everyone: list[Task] = [*sources, *tasks]
        self.stuck = [running for running in everyone if not running.join(max(0.0, deadline - monotonic()))]
        for running in everyone:
            if running not in self.stuck:
                self._close(running)
        if self.stuck:
            names = ", ".join(running.name for running in self.stuck)
            told = f"job {name!r}: {names} did not end within {_JOIN_S:g} s; end the process"
            self.error = self.error or CheckpointError(told)

    def _close(self, running: Task) -> None:
        try:
            running.close()
        except Exception as error:
            self.error = self.error or error
