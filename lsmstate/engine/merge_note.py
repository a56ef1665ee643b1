"""Merge notes: how a finished merge tells every writer of the state that it may be adopted.

A merge is a pure function from runs to new files. Whoever carries one out, in whatever process, opens a note first,
which keeps collectors away from the file of the same name, and completes it once that file is durable: which parts of
which files it took, what is left of those, what it has written, and by which watermark and tombstones it left rows out.
A version that reads exactly those parts, and has come as far, may put the new file in their place; any other
cannot, ever. So a merge that is done twice, given up, or overtaken by a restore does no harm. A note goes when a
version that no longer reads what was merged is the past of its writer: then a manifest protects the file, or nobody
needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from iopool import FileSystem
from lsmstate.errors import CorruptionError, FormatVersionError
from lsmstate.manifest import names
from lsmstate.manifest.codec import DOCUMENT_MAX_BYTES, decode, encode
from lsmstate.manifest.version import Version, decode_file, encode_file
from lsmstate.refs import FileRef, RunRef, Tombstone


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
            if ref is None or ref.digest != taken.digest or ref.parts[taken.run] != taken.part:
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
    files = {name: ref for name, ref in files.items() if ref.live}
    files.update((ref.name, ref) for ref in merged.added)
    return replace(version, files=files)


class NoteWriter:
    """A note that is open: it protects its merge, and tells of nothing yet."""

    def __init__(self, fs: FileSystem, path: str, name: names.Name) -> None:
        self._fs, self._name = fs, str(replace(name, kind="merge"))
        self._path = f"{path}/{names.MERGE_DIR}/{self._name}"
        fs.make_dir(f"{path}/{names.MERGE_DIR}")
        self._file = fs.create(self._path)

    def complete(self, store_id: str, merged: Merged) -> None:
        """Tells of the merge. Requires: its file is durable. The note need not be: if it is lost, so is the merge."""
        body = {
            "store": store_id,
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


def read_notes(fs: FileSystem, path: str, store_id: str) -> Iterator[tuple[str, Merged | None]]:
    """All notes with their names; None for one that is not complete, or damaged, or of another state."""
    directory = f"{path}/{names.MERGE_DIR}"
    for name in noted(fs, path):
        try:
            body = decode(str(name), fs.read(f"{directory}/{name}", DOCUMENT_MAX_BYTES), str(name))[1]
            yield str(name), _decoded(body) if body["store"] == store_id else None
        except (FileNotFoundError, PermissionError):  # of another user, who compacts for himself
            continue
        except (CorruptionError, FormatVersionError, KeyError, TypeError, ValueError, IndexError):
            yield str(name), None


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


def _decoded(body: dict[str, Any]) -> Merged:
    taken = [
        Taken(
            str(file), str(digest), int(run), RunRef(*map(int, part)), None if left is None else RunRef(*map(int, left))
        )
        for file, digest, run, part, left in body["taken"]
    ]
    return Merged(
        tuple(taken),
        tuple(decode_file(told) for told in body["added"]),
        None if body["watermark"] is None else int(body["watermark"]),
        tuple(Tombstone(*map(int, told)) for told in body["tombstones"]),
    )
