"""Pins: how readers in any process keep files from being collected.

A pin is an empty file that its reader keeps locked; its name says which manifest the reader stands on, and which
handle's own files it needs besides. The lock ends with the reader's process, so a dead reader's pin is known for
what it is without a clock. A reader pins first and then looks whether the manifest is still there; a collector
first removes manifests, then looks at the pins once more, and removes files only if none has come: one of the two sees
the other.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from dataclasses import dataclass

from iopool import FileLock, FileSystem
from lsmstate.manifest import names

_numbers = itertools.count(1)
# On a read-only or full disk nobody collects; without locks a collector cannot tell who lives, and leaves all files.
_UNPINNED = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(slots=True)
class Pin:
    """A held pin."""

    fs: FileSystem
    path: str
    lock: FileLock
    pid: int

    def release(self) -> None:
        """Ends the protection, which is its process's: a forked child that closes what it inherited changes nothing."""
        if os.getpid() == self.pid:
            with contextlib.suppress(OSError):  # if it stays, a collector removes it: nobody holds the lock
                self.fs.unlink(self.path)
        self.lock.release()


def take_pin(fs: FileSystem, path: str, manifest: str | None, attempt: str) -> Pin | None:
    """Protects the files of a manifest and of a handle; None where that cannot be written or locked."""
    while True:
        name = names.pin(manifest or names.NO_MANIFEST, attempt, next(_numbers))
        where = f"{path}/{names.PIN_DIR}/{name}"
        try:
            lock = fs.lock(where)
        except (PermissionError, FileNotFoundError):
            return None
        except OSError as error:
            if error.errno in _UNPINNED:
                return None
            raise
        if lock is not None and fs.kind(where) is not None:
            return Pin(fs, where, lock, os.getpid())
        if lock is not None:
            lock.release()


def live_pins(fs: FileSystem, path: str) -> tuple[set[str], set[str]]:
    """The manifests and the attempts that living readers protect; pins of dead ones are removed."""
    manifests, attempts = set(), set()
    for name in fs.list_dir(f"{path}/{names.PIN_DIR}"):
        parsed = names.parse_pin(name)
        if parsed is None:
            continue
        where = f"{path}/{names.PIN_DIR}/{name}"
        lock = fs.lock(where)
        if lock is None:
            manifests.add(parsed[0])
            attempts.add(parsed[1])
            continue
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(where)
        lock.release()
    return manifests - {names.NO_MANIFEST}, attempts
