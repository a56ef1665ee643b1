"""The identity of a state: the file STATE, written once, which says whose files these are and what sides they hold.

A directory is a state as soon as STATE exists; it is the last thing that creation writes. Columns may change later
(evolution.py): the sides are then those of the last document SIDES-NUMBER, which is never changed either.
"""

from __future__ import annotations

import contextlib
import os
import os.path
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from iopool import FileSystem
from lsmstate.engine.remains import check_manifests
from lsmstate.errors import CorruptionError, NotAStateError, SchemaError
from lsmstate.evolution import refusal
from lsmstate.manifest import names
from lsmstate.manifest.codec import DOCUMENT_MAX_BYTES, NESTED, PLAIN, decode, encode
from lsmstate.schema import Side

SIDES_MAX = 128  # numbers above are the engine's own
_CHANGES_MAX = 999_999  # what fits into the name of a document
_DIRS = (names.MANIFEST_DIR, names.SST_DIR, names.PIN_DIR, names.MERGE_DIR)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose files these are, and their sides after so many changes; whether the state had a write-ahead log when it was
    looked at; and what is wanted of it if its sides are to change: `settled` then makes that durable."""

    store_id: str
    sides: tuple[Side, ...]
    logged: bool = False
    changes: int = 0
    wanted: tuple[Side, ...] | None = None


def path_text(path: object) -> str:
    """The path of a state as text. Raises ValueError for what names no directory."""
    told = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(told, str) or not told:
        got = "an empty string" if told == "" else type(told).__name__
        raise ValueError(f"the path of a state is a string or a pathlib.Path, not {got}")
    return told


def read_identity(fs: FileSystem, path: str) -> Identity | None:
    """The identity of an existing state; None where one can be created. Raises NotAStateError for anything else, and
    CorruptionError for a state that has lost its identity or its manifests."""
    kind = fs.kind(path)
    if kind is None:
        return None
    if kind != "dir":
        raise NotAStateError(f"{path}: is not a directory; a state is one: name another path")
    listed = fs.list_dir(path)
    if names.STATE not in listed:
        _check_creatable(fs, path, listed)
        return None
    _check_dirs(fs, path, listed)
    check_manifests(fs, path)
    where = f"{path}/{names.STATE}"
    if fs.kind(where) != "file":
        raise NotAStateError(f"{where}: is not a file; this is not a state of lsmstate")
    body = decode(where, fs.read(where, DOCUMENT_MAX_BYTES), names.STATE)[1]
    try:
        identity = _identity(body, names.LOG_DIR in listed)
        changes = max((number for name in listed if (number := names.parse_sides(name)) is not None), default=0)
        if not changes:
            return identity
        where = f"{path}/{names.sides(changes)}"
        body = decode(where, fs.read(where, DOCUMENT_MAX_BYTES), names.sides(changes))[1]
        changed = _identity(body, identity.logged)
        if changed.store_id != identity.store_id or len(changed.sides) != len(identity.sides):
            raise ValueError("the sides of another state")
        return replace(changed, changes=changes)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, pa.ArrowException) as error:
        raise CorruptionError(where, 0, "the identity of a state", type(error).__name__) from error


def _identity(body: Mapping[str, Any], logged: bool) -> Identity:
    sides = tuple(Side.parse(told) for told in body["sides"])
    check_sides(sides)
    store_id = body["store"]
    if not isinstance(store_id, str) or not names.is_safe(store_id):
        raise ValueError("a name that is not allowed")
    return Identity(store_id, sides, logged)


def find_identity(
    fs: FileSystem, path: str, sides: Sequence[Side] | None, read_only: bool, builds_on: str | None
) -> Identity:
    """The identity of the state to be opened, which has these sides; creates it where a handle may.

    `builds_on` is the candidate that the handle starts from, if any: then there must be a state.
    """
    if sides is not None:
        check_sides(sides)
    identity = read_identity(fs, path)
    if identity is None:
        if builds_on is not None:
            raise NotAStateError(f"{path}: there is no state, though {builds_on} was prepared in it; bring it back")
        if read_only:
            raise NotAStateError(f"{path}: there is no state; a read-only handle cannot create one")
        if sides is None:
            raise NotAStateError(f"{path}: there is no state; give sides= to create one")
        identity = create(fs, path, sides)
    if sides is not None:
        identity = _asked(path, identity, sides)
    if not read_only:
        make_missing(fs, path)
        if builds_on is None:
            settle(fs, path)
    return identity


def create(fs: FileSystem, path: str, sides: Sequence[Side]) -> Identity:
    """Makes a new, empty state durable; gives the identity of another creator that was faster."""
    identity = new_identity(sides)
    make_dirs(fs, path)
    write_identity(fs, path, identity)
    return read_identity(fs, path) or identity


def new_identity(sides: Sequence[Side]) -> Identity:
    """An identity that no state has yet."""
    check_sides(sides)
    return Identity(uuid.uuid4().hex, tuple(sides))


def make_dirs(fs: FileSystem, path: str) -> None:
    """Creates the directories of a state, parents included, durably."""
    missing = []
    at = path
    while fs.kind(at) is None:
        missing.append(at)
        at = os.path.dirname(at)
    for made in reversed(missing):
        fs.make_dir(made)
    for name in _DIRS:
        fs.make_dir(f"{path}/{name}")
    fs.sync_dir(path)
    while path != os.path.dirname(path):  # all the way up: a creator before us may have died before its fsync
        path = os.path.dirname(path)
        with contextlib.suppress(PermissionError):  # not ours to create in, so not ours to make durable
            fs.sync_dir(path)


def settle(fs: FileSystem, path: str) -> None:
    """Makes durable what a writer is about to build on: the process before it may have died between a link and its
    fsync."""
    for directory in (f"{path}/{names.SST_DIR}", f"{path}/{names.MANIFEST_DIR}", path):
        fs.sync_dir(directory)


def make_missing(fs: FileSystem, path: str) -> None:
    """Creates what copies of a state tend to lose: empty directories. Requires: manifests, or nothing published."""
    for name in _DIRS:
        fs.make_dir(f"{path}/{name}")


def write_identity(fs: FileSystem, path: str, identity: Identity) -> None:
    """Makes the directory a state. Does nothing if another creator was faster."""
    body: dict[str, Any] = {"store": identity.store_id, "sides": [side.describe() for side in identity.sides]}
    _publish(fs, path, names.STATE, identity.store_id, body, identity.sides)


def settled(fs: FileSystem, path: str, identity: Identity) -> None:
    """Makes durable what the sides have changed to. Raises SchemaError if another handle changed them meanwhile."""
    if identity.wanted is None:
        return
    if identity.changes >= _CHANGES_MAX:
        raise SchemaError(f"{path}: columns have changed {identity.changes} times; copy the rows into a new state")
    body = {"store": identity.store_id, "sides": [side.describe() for side in identity.wanted]}
    _publish(fs, path, names.sides(identity.changes + 1), uuid.uuid4().hex, body, identity.wanted)
    now = read_identity(fs, path)
    if now is None or [side.schema_id for side in now.sides] != [side.schema_id for side in identity.wanted]:
        raise SchemaError(f"{path}: another handle changes the columns at the same time; open the state again")


def _publish(
    fs: FileSystem, path: str, name: str, draft_name: str, body: dict[str, Any], sides: Sequence[Side]
) -> None:
    """Makes a document of sides durable, whole, under its name. Does nothing if another writer was faster."""
    version = NESTED if any(side.is_nested for side in sides) else PLAIN
    draft = f"{path}/{name}.{draft_name}"
    file = fs.create(draft)
    try:
        file.write([encode(name, body, version)])
        file.sync()
    finally:
        file.close()
    with contextlib.suppress(FileExistsError):
        fs.link(draft, f"{path}/{name}")
    fs.unlink(draft)
    fs.sync_dir(path)


def check_sides(sides: Sequence[Side]) -> None:
    """Raises SchemaError unless the sides can make a state."""
    if not isinstance(sides, list | tuple):
        raise SchemaError(f"sides must be a list of lsmstate.Side, not {type(sides).__name__}")
    if not 1 <= len(sides) <= SIDES_MAX:
        raise SchemaError(f"a state has 1 to {SIDES_MAX} sides, not {len(sides)}")
    for side in sides:
        if not isinstance(side, Side):
            raise SchemaError(f"sides must be lsmstate.Side, not {type(side).__name__}")
    if len({side.name for side in sides}) != len(sides):
        raise SchemaError("two sides have the same name")


def _asked(path: str, identity: Identity, given: Sequence[Side]) -> Identity:
    """The identity with the sides that the state is opened with. Raises SchemaError if its rows are not of such."""
    stored = identity.sides
    if len(stored) != len(given):
        raise SchemaError(f"{path}: the state has {len(stored)} sides, not {len(given)}")
    for number, (was, now) in enumerate(zip(stored, given, strict=True)):
        told = refusal(was, now)
        if told is not None:
            raise SchemaError(
                f"{path}: side {number} ({was.name}) does not fit the state: {told}; "
                "open it with the sides that it has, or create another state"
            )
    if [side.schema_id for side in stored] == [side.schema_id for side in given]:
        return identity
    return replace(identity, wanted=tuple(given))


def _check_dirs(fs: FileSystem, path: str, listed: list[str]) -> None:
    """What lies inside a state is its own: a link would lead readers and collectors out of it."""
    for name in (*_DIRS, names.LOG_DIR):
        if name in listed and fs.kind(f"{path}/{name}") not in ("dir", None):
            raise NotAStateError(
                f"{path}/{name}: is not a directory; links inside a state are not followed, whoever made them: "
                "put the directory itself there"
            )


def _check_creatable(fs: FileSystem, path: str, listed: list[str]) -> None:
    """An empty directory, or a creation that was cut short, may become a state; nothing else."""
    for name in listed:
        ours = name in _DIRS and fs.kind(f"{path}/{name}") == "dir" and not fs.list_dir(f"{path}/{name}")
        if not ours and not name.startswith(f"{names.STATE}."):
            raise NotAStateError(
                f"{path}: holds {name!r} and no {names.STATE} file: not a state, or a branch that was cut short; "
                "name an empty or a new directory"
            )
