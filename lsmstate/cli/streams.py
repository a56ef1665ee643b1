"""The streams of a command: something stands in for those that its caller has closed (`lsmstate verify STATE >&-`).

The exit code is then all that a command tells. Threading: none; for the time of one command.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator

_STREAMS = ("stdin", "stdout", "stderr")


class _Nowhere(io.TextIOBase):
    """Takes everything and keeps nothing; has nothing to read."""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        return len(text)

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # typeshed has it for bytes too
        return ""


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """While it lasts, no stream of this process is None."""
    closed = [name for name in _STREAMS if getattr(sys, name) is None]
    for name in closed:
        setattr(sys, name, _Nowhere())
    try:
        yield
    finally:
        for name in closed:
            setattr(sys, name, None)
