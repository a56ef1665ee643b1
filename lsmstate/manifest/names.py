"""Every file name of a state: built and parsed here and nowhere else.

    STATE                                   the state's identity, and its sides when it was made
    SIDES-NUMBER                            its sides since they changed
    manifest/EPOCH-LINE-ATTEMPT-N.full      a candidate, whole
    manifest/EPOCH-LINE-ATTEMPT-N.delta     a candidate, relative to a full one
    manifest/head-NUMBER                    a candidate published: a second name of its file
    manifest/aborted                        candidates were given up before anything was published
    sst/EPOCH-LINE-ATTEMPT-N.sst            an SSTable
    merges/EPOCH-LINE-ATTEMPT-N.merge       a finished merge, to be adopted
    wal/log-NUMBER                          a segment of the write-ahead log, if there is one
    pins/MANIFEST~ATTEMPT~N                 a live reader, locked as long as it lives
    compacting                              locked by the process that compacts

EPOCH is the epoch that the file was written for, LINE the history it belongs to (a restore starts a new one),
ATTEMPT the handle that wrote it, N a counter in that handle. So names are unique: attempts never overwrite each
other.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

STATE = "STATE"
SIDES = "SIDES"
MANIFEST_DIR = "manifest"
SST_DIR = "sst"
PIN_DIR = "pins"
MERGE_DIR = "merges"
LOG_DIR = "wal"
COMPACTION_LOCK = "compacting"
NO_MANIFEST = "none"
ABORTED = "aborted"

_NAME = re.compile(r"([0-9]{12})-([0-9]{6,12})-([0-9a-z]{1,32})-([0-9]{6,18})\.(full|delta|sst|merge)")
_SIDES = re.compile(r"SIDES-([0-9]{6})")
_HEAD = re.compile(r"head-([0-9]{16})")
_LOG = re.compile(r"log-([0-9]{16})")
_ATTEMPT = re.compile(r"[0-9a-z]{1,32}")
_SAFE = re.compile(r"[0-9a-z._-]{1,128}")


@dataclass(frozen=True, slots=True)
class Name:
    """The parts of a file's name."""

    epoch: int
    line: int
    attempt: str
    number: int
    kind: str

    def __str__(self) -> str:
        return f"{self.epoch:012d}-{self.line:06d}-{self.attempt}-{self.number:06d}.{self.kind}"


def parse(name: str) -> Name | None:
    """The parts of a name; None if it is none of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return Name(int(match[1]), int(match[2]), match[3], int(match[4]), match[5])


def head(number: int) -> str:
    """The name of the publication with this number."""
    return f"head-{number:016d}"


def parse_head(name: str) -> int | None:
    """The number of a publication; None if the name is another."""
    match = _HEAD.fullmatch(name)
    return int(match[1]) if match else None


def sides(number: int) -> str:
    """The name of the sides of a state after so many changes. Each number is taken once, by whoever is faster."""
    return f"{SIDES}-{number:06d}"


def parse_sides(name: str) -> int | None:
    """How many changes a document of sides comes after; None if the name is another."""
    match = _SIDES.fullmatch(name)
    return int(match[1]) if match else None


def log(number: int) -> str:
    """The name of the segment of a log with this number. Each number is taken once, by whoever creates the file."""
    return f"log-{number:016d}"


def parse_log(name: str) -> int | None:
    """The number of a segment of a log; None if the name is another."""
    match = _LOG.fullmatch(name)
    return int(match[1]) if match else None


def pin(manifest: str, attempt: str, number: int) -> str:
    """The name of a reader's pin: it protects the files of a manifest, and those of its own handle."""
    return f"{manifest}~{attempt}~{number}"


def parse_pin(name: str) -> tuple[str, str] | None:
    """The manifest and the attempt that a pin protects."""
    parts = name.split("~")
    return (parts[0], parts[1]) if len(parts) == 3 else None


def new_attempt() -> str:
    """A name for a handle that no other will ever have."""
    return uuid.uuid4().hex[:16]


def is_attempt(name: str) -> bool:
    """Whether a name can be a handle's: it becomes part of file names."""
    return isinstance(name, str) and _ATTEMPT.fullmatch(name) is not None


def checked_attempt(name: str) -> str:
    """The name, if it can be a handle's."""
    if not is_attempt(name):
        raise ValueError(f"attempt must be 1 to 32 digits and small letters, not {name!r}")
    return name


def is_safe(name: str) -> bool:
    """Whether a name from a manifest may be joined to a directory."""
    return _SAFE.fullmatch(name) is not None and name not in (".", "..")
