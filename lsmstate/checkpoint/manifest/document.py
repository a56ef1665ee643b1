"""A manifest as a file: its names, and JSON that people can read, with a checksum over its bytes and its name.

    ID.REVISION.json        a manifest; the highest revision counts
    ID.state                its sidecar
    ID.ATTEMPT.draft        a manifest that is being written

Pure functions. Invariants: the whole file is one JSON object; its first line says the name and the checksum of all that
follows, so any other byte in it is found before the rest is parsed, and a file cannot stand in for another.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import xxhash

from lsmstate.checkpoint.manifest.manifest import CheckpointManifest
from lsmstate.errors import CorruptionError

DOCUMENT_MAX_BYTES = 64 << 20
REVISION_MAX = 10**6 - 1

_MANIFEST = re.compile(r"([0-9]{12})\.([0-9]{1,6})\.json")
_SIDECAR = re.compile(r"([0-9]{12})\.state")
_DRAFT = re.compile(r"[0-9]{12}\.[0-9a-f]{32}\.draft")
_FIRST = re.compile(rb'\{"checkpoint_manifest": "([0-9a-z.]{1,64})", "checksum": "([0-9a-f]{32})", "manifest": \{\n')
_FIRST_MAX = 256
_END = b"\n}}\n"


def manifest_name(checkpoint_id: int, revision: int) -> str:
    """The name of a revision of a manifest."""
    return f"{checkpoint_id:012d}.{revision}.json"


def sidecar_name(checkpoint_id: int) -> str:
    """The name of a sidecar."""
    return f"{checkpoint_id:012d}.state"


def draft_name(checkpoint_id: int) -> str:
    """A name for a draft that no other will ever have."""
    return f"{checkpoint_id:012d}.{uuid.uuid4().hex}.draft"


def parse_manifest(name: str) -> tuple[int, int] | None:
    """The id and the revision of a manifest; None if the name is another."""
    match = _MANIFEST.fullmatch(name)
    if match is None or str(int(match[2])) != match[2] or int(match[1]) < 1:
        return None
    return int(match[1]), int(match[2])


def parse_sidecar(name: str) -> int | None:
    """The id of a sidecar's checkpoint; None if the name is another."""
    match = _SIDECAR.fullmatch(name)
    return int(match[1]) if match else None


def is_draft(name: str) -> bool:
    """Whether a name is a draft's."""
    return _DRAFT.fullmatch(name) is not None


def encode_manifest(name: str, manifest: CheckpointManifest) -> bytes:
    """The bytes of a manifest's file: one line per field."""
    lines = [f"{json.dumps(own)}: {_one_line(value)}" for own, value in manifest.to_json().items()]
    rest = ",\n".join(lines).encode() + _END
    first = f'{{"checkpoint_manifest": "{name}", "checksum": "{_checksum(name, rest)}", "manifest": {{\n'
    return first.encode() + rest


def decode_manifest(path: str, data: bytes, name: str) -> CheckpointManifest:
    """The manifest of a file that must have this name.

    Raises CorruptionError if the bytes are not what was written, FormatVersionError if a newer version wrote them.
    """
    match = _FIRST.match(data[:_FIRST_MAX])
    if match is None:
        raise CorruptionError(path, 0, "a manifest of a checkpoint", "other bytes")
    if match[1].decode() != name:
        raise CorruptionError(path, 0, f"the manifest {name}", "another")
    rest = data[match.end() :]
    got = _checksum(name, rest)
    if match[2].decode() != got:
        raise CorruptionError(path, match.end(), "the checksum of its content", got)
    try:
        body = json.loads(b"{" + rest[:-2], object_pairs_hook=_once, parse_float=_refused, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(path, match.end(), "JSON", type(error).__name__) from None
    manifest = CheckpointManifest.from_json(body, path)
    if f"{manifest.checkpoint_id:012d}" != name[:12]:
        raise CorruptionError(path, match.end(), f"checkpoint {int(name[:12])}", manifest.checkpoint_id)
    return manifest


def _one_line(value: Any) -> str:
    return json.dumps(value, separators=(", ", ": "), allow_nan=False)


def _checksum(name: str, rest: bytes) -> str:
    return str(xxhash.xxh3_128_hexdigest(f"{name}\n".encode() + rest))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field twice")
    return found


def _refused(told: str) -> None:
    raise ValueError("a number that is not whole")
