"""The data part of an SSTable in memory, to be written and then read."""

from __future__ import annotations

from collections.abc import Sequence

from iopool import Bytes
from lsmstate.keys import U64
from lsmstate.sstable.blocks import Blocks, BlockWriter
from lsmstate.sstable.format import uid_of

UID = uid_of("one.sst")


class BlockFile:
    """Give sections to `writer`; then `finish`, and read through `blocks`."""

    def __init__(self) -> None:
        self.data = b""
        self.writer = BlockWriter(self, UID)

    def finish(self) -> U64:
        """Ends the data; gives the sums of the blocks."""
        sums = self.writer.finish()
        assert self.writer.offset == len(self.data)
        return sums

    def blocks(self) -> Blocks:
        """Ends the data, and reads it."""
        self._sums = self.finish()
        return self.blocks_of(self.data)

    def blocks_of(self, data: bytes) -> Blocks:
        """Other bytes, read in place of the data. Requires: data that has ended."""
        return Blocks("f", UID, memoryview(data), self._sums)

    def write(self, views: Sequence[Bytes]) -> None:
        self.data += b"".join(bytes(view) for view in views)

    def sync(self) -> None: ...

    def close(self) -> None: ...
