"""The command line: one file per command. `main` runs one and gives its exit code."""

from __future__ import annotations

from collections.abc import Sequence

_INTERRUPTED = 130

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; gives its exit code."""
    try:
        from lsmstate.cli import entry  # takes half a second, in which somebody may change their mind
    except KeyboardInterrupt:
        return _INTERRUPTED
    return entry.main(argv)
