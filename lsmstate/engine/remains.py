"""Tells a state that was never published from one that has lost its manifests: the second must not open as empty.

Reads only. A state whose first epoch was cut short may have SSTables and no manifest: then the names of all of them say
epoch 1. A file of a later epoch was written after a candidate, and that one was published, or is still there, or was
given up; whoever gives up the last one of a state that was never published leaves a note first (`names.ABORTED`). The
directory itself is made before STATE, so only somebody from outside can have removed it.
"""

from __future__ import annotations

from iopool import FileSystem
from lsmstate.errors import CorruptionError
from lsmstate.manifest import names

_EXPECTED = (
    "the manifests, which say what of {} in {} is the state (copy the directory from a backup, see docs/recovery.md)"
)


def check_manifests(fs: FileSystem, path: str) -> None:
    """Raises CorruptionError if a state has SSTables that were published, and no manifest. Requires: a STATE."""
    directory = f"{path}/{names.MANIFEST_DIR}"
    if _listed(fs, directory):
        return
    tables = [parsed for name in _listed(fs, f"{path}/{names.SST_DIR}") or () if (parsed := names.parse(name))]
    listed = _listed(fs, directory)  # once more: a writer may have gone on between the two looks
    if listed or not tables:
        return
    if listed is None or any(table.epoch > 1 for table in tables):
        files = "1 file" if len(tables) == 1 else f"{len(tables)} files"
        got = "no such directory" if listed is None else "an empty directory"
        raise CorruptionError(directory, 0, _EXPECTED.format(files, f"{names.SST_DIR}/"), got)


def _listed(fs: FileSystem, directory: str) -> list[str] | None:
    """The names in a directory; None if there is no such directory."""
    try:
        return fs.list_dir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
