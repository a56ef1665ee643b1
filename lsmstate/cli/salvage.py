"""What can still be read of a state that cannot be opened: which epochs are whole, and which files are damaged.

Reads only. It never needs the newest manifest, and without the STATE file it takes each SSTable at its own word.
"""

from __future__ import annotations

from dataclasses import dataclass

from iopool import FileSystem
from lsmstate.engine.identity import Identity, read_identity
from lsmstate.engine.verify import Problem, problems_of
from lsmstate.errors import LsmStateError
from lsmstate.manifest import names
from lsmstate.manifest.log import Manifest, ManifestLog
from lsmstate.refs import FileRef
from lsmstate.sstable.reader import SSTable


@dataclass(frozen=True, slots=True)
class Salvage:
    """What is wrong besides the reason that the state does not open, and the epochs that are whole."""

    problems: list[Problem]
    epochs: list[int]
    files: int
    newest: Manifest | None


def holds_remains(fs: FileSystem, path: str) -> bool:
    """Whether a directory without a STATE file holds what only a state holds."""
    listed = _list(fs, f"{path}/{names.MANIFEST_DIR}")
    return fs.kind(path) == "dir" and any(names.parse_head(name) or names.parse(name) for name in listed)


def salvage(fs: FileSystem, path: str) -> Salvage:
    """Looks at every published manifest and every file of a state, each on its own."""
    try:
        identity = read_identity(fs, path)
    except (LsmStateError, OSError):
        identity = None
    if identity is None:
        return _without_identity(fs, path)
    return _without_head(fs, path, identity)


def _without_head(fs: FileSystem, path: str, identity: Identity) -> Salvage:
    log = ManifestLog(fs, path, identity.store_id, len(identity.sides))
    problems: list[Problem] = []
    manifests: list[Manifest] = []
    for name in sorted(_list(fs, log.directory)):
        if names.parse_head(name) is not None:
            try:
                manifests.append(log.read(name))
            except (LsmStateError, OSError) as error:
                problems.append(Problem(f"{log.directory}/{name}", str(error), ()))
    users: dict[str, tuple[FileRef, list[int]]] = {}
    for manifest in manifests:
        for ref in manifest.version.files.values():
            users.setdefault(ref.name, (ref, []))[1].append(manifest.version.epoch)
    harmed: set[int] = set()
    for ref, epochs in users.values():
        where = f"{path}/{names.SST_DIR}/{ref.name}"
        found = _check(fs, where, identity, ref)
        problems += [Problem(where, what, tuple(epochs)) for what in found]
        harmed |= set(epochs) if found else set()
    whole = [manifest for manifest in manifests if manifest.version.epoch not in harmed]
    newest = max(whole, key=lambda manifest: manifest.publication, default=None)
    return Salvage(problems, sorted({manifest.version.epoch for manifest in whole}), len(users), newest)


def _without_identity(fs: FileSystem, path: str) -> Salvage:
    directory = f"{path}/{names.SST_DIR}"
    listed = [name for name in sorted(_list(fs, directory)) if names.parse(name) is not None]
    problems = [
        Problem(f"{directory}/{name}", what, ())
        for name in listed
        for what in _check(fs, f"{directory}/{name}", None, None)
    ]
    return Salvage(problems, [], len(listed), None)


def _check(fs: FileSystem, path: str, identity: Identity | None, ref: FileRef | None) -> list[str]:
    try:
        return list(problems_of(SSTable(fs, path, dict(enumerate(identity.sides)) if identity else None, ref)))
    except FileNotFoundError:
        return ["the file is missing"]
    except (LsmStateError, OSError) as error:
        return [str(error)]


def _list(fs: FileSystem, directory: str) -> list[str]:
    try:
        return fs.list_dir(directory)
    except OSError:
        return []
