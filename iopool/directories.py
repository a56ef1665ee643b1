"""Directories that a crash does not take back."""

from __future__ import annotations

from iopool.fs import FileSystem


def above(path: str) -> str:
    """The directory that a path lies in. Requires: an absolute path."""
    return path.rpartition("/")[0] or "/"


def make_dirs(fs: FileSystem, path: str) -> None:
    """Creates a directory and those above it that are missing, durably. Requires: an absolute path."""
    missing, at = [], path
    while fs.kind(at) is None:
        missing.append(at)
        at = above(at)
    for made in reversed(missing):
        fs.make_dir(made)
        fs.sync_dir(above(made))
