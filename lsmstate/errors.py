"""Every error that lsmstate raises on its own account.

    LsmStateError
    ├── NotAStateError          the path is no state directory, or belongs to something else
    ├── FormatVersionError      written by a newer lsmstate: upgrade to read it
    ├── CorruptionError         bytes on disk are not what was written: path, offset, expected, got
    ├── SchemaError             a side, batch or column does not fit (also a ValueError)
    ├── EpochError              no such epoch, an epoch going back, or the wrong moment for it
    ├── FencedError             another handle published meanwhile: this one may only read, reopen to write
    ├── BackpressureTimeout     memory is full and the disk does not keep up (also a TimeoutError)
    ├── SnapshotExpired         the epoch was retired while somebody still wanted to read it
    ├── CheckpointError         a report or a step of a checkpoint that does not fit what is under way
    │   └── TooManyFailures     as many checkpoints in a row have failed as may
    ├── CatalogError            the catalog is down, locked, read-only ... (`reason`), or has no such job
    ├── SqlError                a statement that streaming tables cannot do: line, column (also a ValueError)
    ├── StoreClosedError        the store, view or catalog was closed, or opened in another process
    └── StorePoisonedError      an fsync failed: nothing more can be promised until the store is reopened

Absence is None, misuse is ValueError, OSError passes through. Messages name things, never values of rows.
"""

from __future__ import annotations


class LsmStateError(Exception):
    """The root of all errors of lsmstate."""


class NotAStateError(LsmStateError):
    """The path does not hold a state."""


class FormatVersionError(LsmStateError):
    """The file was written in a format that this version does not know."""

    def __init__(self, path: str, found: int, supported: int) -> None:
        super().__init__(
            f"{path}: written in format {found}, this lsmstate reads format {supported}; "
            "open it with the version of lsmstate that wrote it, or a newer one"
        )
        self.path, self.found, self.supported = path, found, supported


class CorruptionError(LsmStateError):
    """Bytes on disk differ from what was written. Nothing was changed."""

    def __init__(self, path: str, offset: int, expected: object, got: object) -> None:
        super().__init__(
            f"{path}: damaged at byte {offset}: expected {expected}, got {got}; "
            "run `lsmstate verify` on the state to see all damage, and restore an older epoch or a copy"
        )
        self.path, self.offset, self.expected, self.got = path, offset, expected, got


class SchemaError(LsmStateError, ValueError):
    """A side, a batch or a column does not fit the state."""


class EpochError(LsmStateError):
    """The epoch does not exist, goes back, or the call comes at the wrong moment."""


class FencedError(LsmStateError):
    """Another handle has published; this handle can no longer write."""


class BackpressureTimeout(LsmStateError, TimeoutError):
    """A batch waited too long for memory that others hold. It was not added."""


class SnapshotExpired(LsmStateError):
    """What the view reads was retired and collected."""


class CheckpointError(LsmStateError):
    """A report or a step of a checkpoint does not fit what is under way. Nothing was changed."""


class TooManyFailures(CheckpointError):
    """As many checkpoints in a row have failed as may: the job needs a new start."""


class CatalogError(LsmStateError):
    """The catalog cannot do it. `reason`: down, locked, read_only, denied, full, io, damaged, newer, conflict, driver,
    unknown_job, other_kind or other."""

    def __init__(self, text: str, reason: str = "other") -> None:
        super().__init__(text)
        self.reason = reason

    def __reduce__(self) -> tuple[type[CatalogError], tuple[str, str]]:
        return type(self), (str(self), self.reason)


class SqlError(LsmStateError, ValueError):
    """A statement is wrong, or asks for what is not supported. Nothing was changed. Lines and columns count from 1."""

    def __init__(self, text: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(text if line is None else f"line {line}, column {column}: {text}")
        self.text, self.line, self.column = text, line, column

    def __reduce__(self) -> tuple[type[SqlError], tuple[str, int | None, int | None]]:
        return type(self), (self.text, self.line, self.column)


class StoreClosedError(LsmStateError):
    """The handle is closed, or was opened in another process."""


class StorePoisonedError(LsmStateError):
    """An fsync failed earlier; the handle cannot promise durability any more."""
