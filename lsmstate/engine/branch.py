"""Branch: a committed epoch as a state of its own, sharing files by hard links, so that nothing is copied."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

from iopool import FileSystem
from lsmstate.engine.epochs import find_epoch
from lsmstate.engine.identity import make_dirs, new_identity, read_identity, write_identity
from lsmstate.errors import LsmStateError, NotAStateError
from lsmstate.manifest import names
from lsmstate.manifest.log import Head, ManifestLog
from lsmstate.manifest.version import Version

if TYPE_CHECKING:
    from lsmstate.engine.core import Core


def branch(core: Core, epoch: int, path: str) -> None:
    """Makes `path` a new state that begins with the rows of an epoch. Requires: the write lock."""
    core.check_open()
    found = find_epoch(core, epoch)
    _check_apart(core.path, path)
    if read_identity(core.fs, path) is not None:
        raise NotAStateError(f"{path}: is a state already; branch into a new directory")
    pin = core.pin(found)
    try:
        _branch(core, replace(found.version, history=(), line=1, wal=None), path)
    finally:
        if pin is not None:
            pin.release()


def _check_apart(mine: str, other: str) -> None:
    """What lies inside a state is its own: files of another one there would be in the way of both."""
    if other.startswith(f"{mine}/"):
        raise NotAStateError(f"{other}: lies inside the state {mine}; branch into a directory beside it")
    if mine.startswith(f"{other.rstrip('/')}/"):
        raise NotAStateError(f"{other}: the state {mine} lies inside it; branch into a directory beside that state")


def _branch(core: Core, version: Version, path: str) -> None:
    identity = new_identity(core.sides)
    make_dirs(core.fs, path)
    made: list[str] = []
    try:
        for name in version.files:
            _link(core, name, path)
            made.append(f"{names.SST_DIR}/{name}")
        core.fs.sync_dir(f"{path}/{names.SST_DIR}")
        log = ManifestLog(core.fs, path, identity.store_id, len(core.sides))
        manifest = log.write_candidate(version, core.attempt, core.next_number(), Head(0, None))
        made.append(f"{names.MANIFEST_DIR}/{manifest.name}")
        head = log.publish(manifest, Head(0, None))
        made.append(f"{names.MANIFEST_DIR}/{names.head(head.number)}")
        write_identity(core.fs, path, identity)
    except (Exception, KeyboardInterrupt):
        _undo(core.fs, path, made)
        raise


def _undo(fs: FileSystem, path: str, made: list[str]) -> None:
    """Leaves empty directories, in which the next try can begin; nothing is touched once there is a STATE."""
    with contextlib.suppress(OSError):  # then the next try says that the directory is not empty
        if fs.kind(f"{path}/{names.STATE}") is None:
            for name in reversed(made):
                fs.unlink(f"{path}/{name}")


def _link(core: Core, name: str, path: str) -> None:
    try:
        core.fs.link(f"{core.path}/{names.SST_DIR}/{name}", f"{path}/{names.SST_DIR}/{name}")
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP):
            raise LsmStateError(
                f"{path}: cannot share files with {core.path} ({error.strerror}); "
                "branch into a directory on the same file system, one that has hard links"
            ) from error
        raise
