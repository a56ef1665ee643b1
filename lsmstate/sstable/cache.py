"""Open SSTables of a process, so that a file is mapped and its index parsed once.

Threading: safe. Names are never used twice, and the digest is part of the key, so an entry can never be stale.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from iopool import FileSystem
from lsmstate.refs import FileRef
from lsmstate.schema import Side
from lsmstate.sstable.reader import SSTable

_FILES_MAX = 512  # mapped at once; a mapping holds a descriptor


class FileCache:
    """The most recently used SSTables. A view that holds one keeps it alive whether or not it is still cached."""

    def __init__(self, files_max: int = _FILES_MAX) -> None:
        self._files_max = files_max
        self._open: OrderedDict[tuple[str, str], SSTable] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, fs: FileSystem, directory: str, ref: FileRef, sides: Mapping[int, Side]) -> SSTable:
        """The open SSTable; raises what opening raises."""
        key = (f"{directory}/{ref.name}", ref.digest)
        with self._lock:
            table = self._open.get(key)
            if table is not None and table.fits(sides):
                self._open.move_to_end(key)
                return table
        table = SSTable(fs, key[0], sides, ref)
        with self._lock:
            self._open[key] = table
            while len(self._open) > self._files_max:
                self._open.popitem(last=False)
        return table

    def drop(self, directory: str, names: set[str]) -> None:
        """Forgets files that were deleted."""
        gone = {f"{directory}/{name}" for name in names}
        with self._lock:
            for key in [key for key in self._open if key[0] in gone]:
                del self._open[key]

    def clear(self) -> None:
        """Forgets all; mappings end when their last user does."""
        with self._lock:
            self._open.clear()

    def __len__(self) -> int:
        return len(self._open)
