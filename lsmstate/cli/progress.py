"""A line on stderr that tells how far a command is: only where somebody can see it, and gone when it ends."""

from __future__ import annotations

import sys
from typing import Any, Self

from rich.progress import Progress, ProgressColumn

from lsmstate.cli.terminal import console


class Line:
    """Is there while its `with` lasts. columns: what it consists of; begins: its description before it is told more."""

    def __init__(self, *columns: ProgressColumn, begins: str) -> None:
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(*columns, console=console(stderr=True), transient=True)
            self._bar.add_task(begins, total=None)

    @property
    def is_seen(self) -> bool:
        """Whether there is anybody to tell."""
        return self._bar is not None

    def update(self, **changes: Any) -> None:
        """What is new: description, completed, total."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], **changes)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
