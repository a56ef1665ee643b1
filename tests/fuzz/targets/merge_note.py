"""Merge notes (engine/merge_note.py), and whether a version may adopt what they tell."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate.engine.merge_note import Merged, NoteWriter, Taken, adopted, read_notes
from lsmstate.manifest import names
from lsmstate.manifest.version import Version, encode_version
from lsmstate.refs import FileRef, RunRef, Tombstone
from tests.fuzz.kit import STATE, STORE, body_of, documented, mounted, sealed
from tests.support.small_store import SIDES

NAME = names.Name(1, 1, "fuzz", 9, "merge")
RUN = RunRef(0, 0, 3, 10, 0, 39_000_000, 1, 10)
FILE = FileRef(str(names.Name(1, 1, "fuzz", 1, "sst")), 9000, "0" * 32, (RUN,))
TOMBSTONE = Tombstone(0, 0, 5, 11)
VERSION = Version(2, 1, 12, 50_000_000, {FILE.name: FILE}, (TOMBSTONE,))


def seeds() -> Iterator[tuple[str, bytes]]:
    left = RUN._replace(first_bucket=2, min_ts=20_000_000, rows=4)
    added = FileRef(str(names.Name(1, 1, "fuzz", 9, "sst")), 8000, "1" * 32, (RUN._replace(rows=6),), None, 3)
    for name, merged in {
        "whole": Merged((Taken(FILE.name, FILE.digest, 0, RUN, None),), (added,), 50_000_000, (TOMBSTONE,)),
        "part": Merged((Taken(FILE.name, FILE.digest, 0, RUN, left),), (added,), None, ()),
    }.items():
        fs = mounted({})
        NoteWriter(fs, STATE, NAME).complete(STORE, SIDES, merged)
        yield name, body_of(fs.read(f"{STATE}/merges/{NAME}", 1 << 20))


def run(data: bytes) -> None:
    fs = mounted({f"{STATE}/merges/{NAME}": sealed(str(NAME), data)})
    with documented():
        for name, merged in read_notes(fs, STATE, STORE, SIDES):
            assert name == str(NAME)
            version = None if merged is None else adopted(VERSION, merged)
            if version is not None:
                encode_version(version, VERSION)
                assert version.rows(0) >= 0
