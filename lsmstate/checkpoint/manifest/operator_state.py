"""Where the state of an operator lies: in the manifest itself, in its sidecar, or in files of the engine.

Owns the three kinds and their JSON. Immutable values; any thread. Invariants: a state is exactly one of the three;
names that will be joined to a directory are checked when a value is made, also when it is read from a file; bytes are
base64 in its one canonical form. No state at all is absence: the operator has no entry.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lsmstate.checkpoint.manifest.json_fields import FieldError, digest, fields, items, natural, table, text
from lsmstate.manifest import names
from lsmstate.refs import FileRef

INLINE_MAX_BYTES = 64 << 10  # what is read; `pack` puts far less into a manifest
_DEPTH_MAX = 8
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a sidecar: its place and its SHA-256. checkpoint_id: whose sidecar it is, if not the manifest's own."""

    offset: int
    length: int
    digest: str
    checkpoint_id: int | None = None

    def __post_init__(self) -> None:
        if self.offset < 0 or self.length < 0:
            raise FieldError("a part of a sidecar", "one before its beginning")
        if _SHA256.fullmatch(self.digest) is None:
            raise FieldError("a SHA-256 of 64 digits", "another digest")
        if self.checkpoint_id is not None and self.checkpoint_id < 1:
            raise FieldError("the id of a checkpoint", "a number below 1")


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of the engine, as the engine's own manifest tells it."""

    name: str
    size_bytes: int
    digest: str

    def __post_init__(self) -> None:
        if not names.is_safe(self.name):
            raise FieldError("the name of a file", "one that is not allowed")


@dataclass(frozen=True, slots=True)
class LsmState:
    """A candidate of a state of the engine. directory: where the state lies, relative to the job's directory."""

    candidate: str
    directory: str
    files: tuple[StateFile, ...] = ()

    def __post_init__(self) -> None:
        if not names.is_safe(self.candidate):
            raise FieldError("the name of a candidate", "one that is not allowed")
        relative_path(self.directory)
        object.__setattr__(self, "files", tuple(self.files))

    @classmethod
    def of(cls, candidate: str, directory: str, files: Iterable[FileRef]) -> LsmState:
        """The state of a candidate, with the files that its version names."""
        return cls(candidate, directory, tuple(StateFile(ref.name, ref.size_bytes, ref.digest) for ref in files))


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of one operator, or one blob of records: exactly one of the three is set."""

    inline: bytes | None = field(default=None, repr=False)
    sidecar: Place | None = None
    lsm: LsmState | None = None

    def __post_init__(self) -> None:
        if sum(part is not None for part in (self.inline, self.sidecar, self.lsm)) != 1:
            raise FieldError("one of inline, sidecar and lsm", "none or several")
        if self.inline is not None:
            if not isinstance(self.inline, bytes):
                raise FieldError("bytes", type(self.inline).__name__)
            if len(self.inline) > INLINE_MAX_BYTES:
                raise FieldError(f"at most {INLINE_MAX_BYTES} bytes inline", f"{len(self.inline)}; use the sidecar")

    @property
    def size_bytes(self) -> int:
        """How many bytes it stands for."""
        if self.inline is not None:
            return len(self.inline)
        if self.sidecar is not None:
            return self.sidecar.length
        assert self.lsm is not None
        return sum(file.size_bytes for file in self.lsm.files)

    def to_json(self) -> dict[str, Any]:
        """As the manifest tells it."""
        if self.inline is not None:
            return {"inline": base64.b64encode(self.inline).decode("ascii")}
        if (place := self.sidecar) is not None:
            told: dict[str, Any] = {"offset": place.offset, "length": place.length, "digest": place.digest}
            if place.checkpoint_id is not None:
                told["checkpoint_id"] = place.checkpoint_id
            return {"sidecar": told}
        assert self.lsm is not None
        files = [[file.name, file.size_bytes, file.digest] for file in self.lsm.files]
        return {"lsm": {"candidate": self.lsm.candidate, "directory": self.lsm.directory, "files": files}}

    @classmethod
    def from_json(cls, told: object) -> OperatorState:
        """What `to_json` told. Raises FieldError if it is something else."""
        found = fields(told, set(), {"inline", "sidecar", "lsm"})
        if len(found) != 1:
            raise FieldError("one of inline, sidecar and lsm", "none or several")
        ((kind, value),) = found.items()
        if kind == "inline":
            return cls(inline=_decoded(value))
        if kind == "sidecar":
            return cls(sidecar=_place(value))
        lsm = fields(value, {"candidate", "directory", "files"})
        return cls(lsm=LsmState(text(lsm["candidate"]), text(lsm["directory"]), items(_file)(lsm["files"])))


@dataclass(frozen=True, slots=True)
class InflightRecords:
    """Records that were on their way to one input of an operator: blobs in order, each inline or in the sidecar."""

    blobs: tuple[OperatorState, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "blobs", tuple(self.blobs))
        if any(blob.lsm is not None for blob in self.blobs):
            raise FieldError("records inline or in the sidecar", "files of the engine")

    def to_json(self) -> list[Any]:
        """As the manifest tells it."""
        return [blob.to_json() for blob in self.blobs]

    @classmethod
    def from_json(cls, told: object) -> InflightRecords:
        """What `to_json` told. Raises FieldError if it is something else."""
        return cls(items(OperatorState.from_json)(told))


inflight_table = table(table(InflightRecords.from_json))
"""Reads in-flight records by operator and input."""


def relative_path(told: object) -> str:
    """A path of a few safe names, relative to a directory that the reader knows."""
    parts = text(told).split("/")
    if len(parts) > _DEPTH_MAX or not all(names.is_safe(part) for part in parts):
        raise FieldError("a relative path of names of [0-9a-z._-]", "another")
    return "/".join(parts)


def _decoded(told: object) -> bytes:
    encoded = text(told)
    if len(encoded) > INLINE_MAX_BYTES * 4 // 3 + 4:
        raise FieldError(f"at most {INLINE_MAX_BYTES} bytes inline", "more")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise FieldError("base64", "other text") from None
    if base64.b64encode(data).decode("ascii") != encoded:
        raise FieldError("base64", "base64 that says more than its bytes")
    return data


def _place(told: object) -> Place:
    found = fields(told, {"offset", "length", "digest"}, {"checkpoint_id"})
    holder = natural(found["checkpoint_id"]) if "checkpoint_id" in found else None
    return Place(natural(found["offset"]), natural(found["length"]), digest(found["digest"]), holder)


def _file(told: object) -> StateFile:
    if not isinstance(told, list) or len(told) != 3:
        raise FieldError("name, size and digest of a file", "something else")
    return StateFile(text(told[0]), natural(told[1]), digest(told[2]))
