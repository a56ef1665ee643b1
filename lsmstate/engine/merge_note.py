"""Merge notes: how a finished merge tells every writer of the state that it may be adopted.

A merge is a pure function from runs to new files. Whoever carries one out, in whatever process, opens a note first,
which keeps collectors away from the file of the same name, and completes it once that file is durable: which parts of
which files it took, what is left of those, what it has written, by which watermark and tombstones it left rows out, and
with which columns. A version that reads exactly those parts, with those columns, and has come as far, may put the new
file in their place; any other cannot, ever. So a merge that is done twice, given up, or overtaken by a restore does no
harm. A note goes when a version that no longer reads what was merged is the past of its writer: then a manifest
protects the file, or nobody needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iopool import FileSystem
from lsmstate.errors import CorruptionError, FormatVersionError
from lsmstate.manifest import names
from lsmstate.manifest.codec import DOCUMENT_MAX_BYTES, decode, encode
from lsmstate.manifest.version import Version, decode_file, decode_run, decode_tombstone, encode_file
from lsmstate.refs import FileRef, RunRef, Tombstone, narrowed
from lsmstate.schema import Side


@dataclass(frozen=True, slots=True)
class Taken:
    """What a merge took out of one run of a file: the part that was read, and what is left of it."""

    file: str
    digest: str
    run: int
    part: RunRef
    left: RunRef | None


@dataclass(frozen=True, slots=True)
class Merged:
    """A finished merge."""

    taken: tuple[Taken, ...]
    added: tuple[FileRef, ...]
    watermark: int | None
    tombstones: tuple[Tombstone, ...]

    @property
    def bytes_written(self) -> int:
        """The size of the new files."""
        return sum(ref.size_bytes for ref in self.added)

    def is_overtaken(self, version: Version) -> bool:
        """Whether a version no longer reads what was merged: because it has adopted this merge, or another."""
        for taken in self.taken:
            ref = version.files.get(taken.file)
            if ref is None or ref.digest != taken.digest or ref.parts[taken.run : taken.run + 1] != (taken.part,):
                return True
        return False


def adopted(version: Version, merged: Merged) -> Version | None:
    """The version with the merge in place; None if it cannot be."""
    if merged.watermark is not None and (version.watermark is None or version.watermark < merged.watermark):
        return None
    if not all(any(now.covers(then) for now in version.tombstones) for then in merged.tombstones):
        return None
    if merged.is_overtaken(version):
        return None
    files = dict(version.files)
    for taken in merged.taken:
        ref = files[taken.file]
        left = (*ref.parts[: taken.run], taken.left, *ref.parts[taken.run + 1 :])
        files[taken.file] = ref._replace(left=left)
    for name in {taken.file for taken in merged.taken}:
        if not files[name].live:
            del files[name]
    files.update((ref.name, ref) for ref in merged.added)
    return replace(version, files=files)


class NoteWriter:
    """A note that is open: it protects its merge, and tells of nothing yet."""

    def __init__(self, fs: FileSystem, path: str, name: names.Name) -> None:
        self._fs, self._name = fs, str(replace(name, kind="merge"))
        self._path = f"{path}/{names.MERGE_DIR}/{self._name}"
        fs.make_dir(f"{path}/{names.MERGE_DIR}")
        self._file = fs.create(self._path)

    def complete(self, store_id: str, sides: Sequence[Side], merged: Merged) -> None:
        """Tells of the merge. Requires: its file is durable. The note need not be: if it is lost, so is the merge."""
        body = {
            "store": store_id,
            "columns": _columns(sides),
            "taken": [[t.file, t.digest, t.run, list(t.part), t.left and list(t.left)] for t in merged.taken],
            "added": [encode_file(ref) for ref in merged.added],
            "watermark": merged.watermark,
            "tombstones": [[t.side, t.start_ts, t.end_ts, t.id] for t in merged.tombstones],
        }
        try:
            self._file.write([encode(self._name, body)])
        finally:
            self._file.close()

    def give_up(self) -> None:
        """Lets go of the merge."""
        self._file.close()
        with contextlib.suppress(OSError):
            self._fs.unlink(self._path)


def read_notes(fs: FileSystem, path: str, store_id: str, sides: Sequence[Side]) -> Iterator[tuple[str, Merged | None]]:
    """All notes with their names; None for one that is not complete, or damaged, of another state or other columns."""
    directory = f"{path}/{names.MERGE_DIR}"
    for name in noted(fs, path):
        try:
            body = decode(str(name), fs.read(f"{directory}/{name}", DOCUMENT_MAX_BYTES), str(name))[1]
            ours = body["store"] == store_id and body["columns"] == _columns(sides)
            yield str(name), _decoded(body, len(sides)) if ours else None
        except (FileNotFoundError, PermissionError):  # of another user, who compacts for himself
            continue
        except (CorruptionError, FormatVersionError, LookupError, TypeError, ValueError, OverflowError, AttributeError):
            yield str(name), None


def _columns(sides: Sequence[Side]) -> list[str]:
    return [side.schema_id for side in sides]


def remove_note(fs: FileSystem, path: str, name: str) -> None:
    """Removes a note; another may have been faster. Should it come back after a crash, it is still overtaken."""
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(f"{path}/{names.MERGE_DIR}/{name}")


def noted(fs: FileSystem, path: str) -> list[names.Name]:
    """The names of all notes, complete or not, in order."""
    try:
        parsed = [names.parse(name) for name in sorted(fs.list_dir(f"{path}/{names.MERGE_DIR}"))]
    except FileNotFoundError:
        return []
    return [name for name in parsed if name is not None and name.kind == "merge"]


def _decoded(body: dict[str, Any], sides: int) -> Merged:
    taken = [
        Taken(str(file), str(digest), int(run), decode_run(part), None if left is None else decode_run(left))
        for file, digest, run, part, left in body["taken"]
    ]
    added = tuple(decode_file(told) for told in body["added"])
    if any(each.left is not None and not _narrows(each.left, each.part) for each in taken):
        raise ValueError("what is left of a run is not a part of it")
    if any(each.run < 0 for each in taken) or any(run.side >= sides for ref in added for run in ref.runs):
        raise ValueError("a run that the state does not have")
    tombstones = tuple(decode_tombstone(told, sides) for told in body["tombstones"])
    return Merged(tuple(taken), added, None if body["watermark"] is None else int(body["watermark"]), tombstones)


def _narrows(left: RunRef, part: RunRef) -> bool:
    """Whether it can be what is left of a part once older rows are taken."""
    return (
        part.first_bucket <= left.first_bucket <= part.last_bucket
        and part.min_ts <= left.min_ts <= part.max_ts
        and 1 <= left.rows <= part.rows
        and left == narrowed(part, left.first_bucket, left.min_ts, left.rows)
    )
