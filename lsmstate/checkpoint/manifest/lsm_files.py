"""The engine's files of an operator's state: which ones a candidate names, and whether they are still what they were.

Reads only. Threading: any thread.
"""

from __future__ import annotations

import xxhash

from iopool import FileSystem
from lsmstate.checkpoint.manifest.operator_state import LsmState
from lsmstate.errors import CorruptionError
from lsmstate.manifest import names
from lsmstate.manifest.codec import DOCUMENT_MAX_BYTES, decode
from lsmstate.manifest.version import Version, decode_version
from lsmstate.sstable.format import FOOTER_BYTES

_SIDES_MAX = 256


def lsm_state(fs: FileSystem, root: str, directory: str, candidate: str) -> LsmState:
    """The state of a candidate in `root/directory`, with all its files. CorruptionError if there is no such thing."""
    return LsmState.of(candidate, directory, _version(fs, f"{root}/{directory}", candidate).files.values())


def check_lsm(fs: FileSystem, root: str, state: LsmState) -> list[str]:
    """What is wrong with the files of a state below `root`, in words; looks at sizes and footers, not at every row."""
    path, found = f"{root}/{state.directory}", []
    try:
        told = lsm_state(fs, root, state.directory, state.candidate)
        if {*told.files} != {*state.files}:
            found.append(f"{path}: candidate {state.candidate} names other files than the checkpoint")
    except CorruptionError as error:
        found.append(str(error))
    for file in state.files:
        where = f"{path}/{names.SST_DIR}/{file.name}"
        try:
            data = fs.map(where)
        except OSError as error:
            found.append(f"{where}: cannot be read: {error.strerror}")
            continue
        if len(data) != file.size_bytes or xxhash.xxh3_128_hexdigest(data[-FOOTER_BYTES:]) != file.digest:
            found.append(f"{where}: is not the file of the checkpoint")
    return found


def _version(fs: FileSystem, path: str, candidate: str) -> Version:
    body = _document(fs, path, candidate)
    try:
        if body.get("base") is None:
            return decode_version(body, None, _SIDES_MAX)
        base = decode_version(_document(fs, path, body["base"]), None, _SIDES_MAX)
        return decode_version(body, base, _SIDES_MAX)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        where = f"{path}/{names.MANIFEST_DIR}/{candidate}"
        raise CorruptionError(where, 0, "a manifest of the engine", type(error).__name__) from error


def _document(fs: FileSystem, path: str, name: object) -> dict[str, object]:
    if not isinstance(name, str) or names.parse(name) is None:
        raise CorruptionError(f"{path}/{names.MANIFEST_DIR}", 0, "the name of a candidate", "another")
    where = f"{path}/{names.MANIFEST_DIR}/{name}"
    try:
        data = fs.read(where, DOCUMENT_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise CorruptionError(where, 0, "a candidate", "nothing") from None
    return decode(where, data, name)[1]
