"""Whose a log is: the handle's that has taken the highest number.

A handle takes the next number before it reads what others have written, so it has read all that was ever acknowledged:
the others look whether their number is still the highest before they acknowledge anything. Each number is the file of a
segment, created exclusively.

Threading: `check` from any thread; numbers are taken by one thread at a time. Invariants: a handle that has lost the
log never gets it back, and `fail` is told before FencedError is raised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from iopool import FileSystem, WritableFile
from lsmstate.engine.wal_chain import Segments
from lsmstate.errors import FencedError


class Claim:
    """The number that a handle has taken. `fail` is told of what ends the log for it."""

    def __init__(self, fs: FileSystem, segments: Segments, fail: Callable[[Exception], None]) -> None:
        self._fs, self._segments, self._fail = fs, segments, fail
        self.number = 0

    def take_over(self) -> WritableFile:
        """Takes the log from whoever has it; gives the file of the new segment."""
        while True:
            self.number = max(self._segments.numbers(), default=0) + 1
            try:
                file = self._fs.create(self._segments.path(self.number))
            except FileExistsError:
                continue  # another handle was faster: after it, then
            with _closing_if_it_raises(file):
                if self._is_highest():
                    self._fs.sync_dir(self._segments.directory)
                    return file
            file.close()

    def take_next(self) -> WritableFile:
        """Takes the next number for a segment to go on in. Raises FencedError if another handle has it."""
        path = self._segments.path(self.number + 1)
        try:
            file = self._fs.create(path)
        except FileExistsError:
            raise self._fenced() from None
        except OSError as error:
            if self._fs.kind(path) is not None:
                self._fail(error)  # created or not, by us or by another: only a new handle can tell
            raise
        self.number += 1
        with _closing_if_it_raises(file):
            if not self._is_highest():
                raise self._fenced()
            try:
                self._fs.sync_dir(self._segments.directory)
            except OSError as error:
                self._fail(error)
                raise
        return file

    def check(self) -> None:
        """Raises FencedError if another handle has taken the log. The order matters: the next number goes only after
        ours has gone."""
        taken = self._fs.kind(self._segments.path(self.number + 1)) is not None
        if taken or self._fs.kind(self._segments.path(self.number)) is None:
            raise self._fenced()

    def _is_highest(self) -> bool:
        """Whether the number that was taken is the newest: others may have come, gone on, and removed older ones."""
        return max(self._segments.numbers(), default=0) == self.number

    def _fenced(self) -> FencedError:
        error = FencedError(
            f"{self._segments.directory}: another handle has taken the log; what was acknowledged is part of it, "
            "of the write that was under way only a new handle can tell: close this one, and reopen to go on"
        )
        self._fail(error)
        return error


@contextlib.contextmanager
def _closing_if_it_raises(file: WritableFile) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise
