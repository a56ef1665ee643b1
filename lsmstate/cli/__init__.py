"""The command line: one file per command. `main` runs one and gives its exit code."""

from lsmstate.cli.entry import main

__all__ = ["main"]
