"""Branch: a committed epoch as a state of its own, sharing files by hard links, so that nothing is copied."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

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
    if read_identity(core.fs, path) is not None:
        raise NotAStateError(f"{path}: is a state already; branch into a new directory")
    pin = core.pin(found)
    try:
        _branch(core, replace(found.version, history=(), line=1, wal=None), path)
    finally:
        if pin is not None:
            pin.release()


def _branch(core: Core, version: Version, path: str) -> None:
    identity = new_identity(core.sides)
    make_dirs(core.fs, path)
    for name in version.files:
        _link(core, name, path)
    core.fs.sync_dir(f"{path}/{names.SST_DIR}")
    log = ManifestLog(core.fs, path, identity.store_id, len(core.sides))
    manifest = log.write_candidate(version, core.attempt, core.next_number(), Head(0, None))
    log.publish(manifest, Head(0, None))
    write_identity(core.fs, path, identity)


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
