"""The directory of a file sink: every name in it, who may write there, and how files become visible.

    part-EPOCH-GENERATION-ATTEMPT-N.parquet     what readers see
    _lsmstate/                                  what they do not: the underscore hides it
        generations/NUMBER                      each sink that was opened here, and its name; the highest may write
        generations/NUMBER.settled              it has settled what those before had staged
        drafts/ATTEMPT-N                        being written
        staged/EPOCH-GENERATION-ATTEMPT-N       durable, not decided
        undone/part-...                         was visible, and belongs to epochs that a restore has left
        SCHEMA                                  the columns

What a generation may still publish lies under `staged`; a newer one empties that before it goes on, so a sink that has
been replaced has nothing left to link, however late it wakes up. What it stages after that is older than the newest
settled generation, and never counts. Threading: none of its own.
"""

from __future__ import annotations

import base64
import contextlib
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from iopool import FileSystem, make_dirs
from lsmstate.errors import CorruptionError, EpochError, FencedError, LsmStateError, NotAStateError
from lsmstate.manifest.codec import decode, encode

_INSIDE = "_lsmstate"
_DIRS = ("generations", "drafts", "staged", "undone")
_SCHEMA = "SCHEMA"
_DOCUMENT_MAX_BYTES = 16 << 20
_TRIES = 100
_PART = re.compile(r"([0-9]{12})-([0-9]{8})-([0-9a-z]{1,32})-([0-9]{6,18})")
_VISIBLE = re.compile(rf"part-({_PART.pattern})\.parquet")
_GENERATION = re.compile(r"([0-9]{8})(\.settled)?")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A file with the rows of an epoch, of one generation."""

    epoch: int
    generation: int
    attempt: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch:012d}-{self.generation:08d}-{self.attempt}-{self.number:06d}"

    @property
    def visible(self) -> str:
        """The name that readers see."""
        return f"part-{self}.parquet"


def parsed(name: str) -> Part | None:
    """The part that a name tells of; None if it is none of ours."""
    match = _PART.fullmatch(name)
    return None if match is None else Part(int(match[1]), int(match[2]), match[3], int(match[4]))


class Place:
    """One directory."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs, self.path = fs, path
        self.inside = f"{path}/{_INSIDE}"

    def make(self) -> None:
        """Makes the directory, durably, or finds it. Raises NotAStateError if it holds something else."""
        kind = self.fs.kind(self.path)
        if kind is not None and kind != "dir":
            raise NotAStateError(f"{self.path}: is not a directory; name another one for the sink")
        make_dirs(self.fs, self.path)
        foreign = [name for name in sorted(self.fs.list_dir(self.path)) if name != _INSIDE]
        if foreign and self.fs.kind(self.inside) is None:
            raise NotAStateError(f"{self.path}: holds {foreign[0]!r:.100} and is no sink; name an empty directory")
        self.fs.make_dir(self.inside)
        for name in _DIRS:
            self.fs.make_dir(f"{self.inside}/{name}")
        self.fs.sync_dir(self.inside)
        self.fs.sync_dir(self.path)

    # ---- generations

    def enter(self, name: str, attempt: str, committed: int) -> int:
        """The number of a new generation; those before are fenced. Raises, before anything is changed, if the place is
        another's, or holds what a job that has committed nothing cannot have written."""
        visible = self._visible()
        if visible and committed == 0:
            raise EpochError(
                f"{self.path}: holds epochs up to {max(visible).epoch}, and the job has committed none: it is new, or "
                "its catalog is lost. Name an empty directory, or bring the catalog back"
            )
        while True:
            newest = self.newest()
            told = self._read(f"generations/{newest:08d}") if newest else {"name": name}
            if told is None:
                continue  # a newer one has come, and has tidied up
            if told.get("name") != name:
                raise NotAStateError(f"{self.path}: belongs to {told.get('name')!r:.200}, not to {name!r:.200}")
            if self._publish(f"generations/{newest + 1:08d}", {"name": name, "attempt": attempt}):
                return newest + 1

    def newest(self) -> int:
        """The highest generation; 0 if there is none."""
        return max((number for number, _ in self._generations()), default=0)

    def check(self, generation: int) -> None:
        """Raises FencedError if a newer generation has come."""
        newest = self.newest()
        if newest != generation:
            raise FencedError(
                f"{self.path}: opened again by another (generation {newest}, this is {generation}); "
                "what it had not committed is dropped, open the sink again to go on"
            )

    def settle(self, generation: int, committed: int) -> None:
        """Publishes what earlier generations had staged up to an epoch, drops what is newer, and says so durably."""
        settled = max((number for number, done in self._generations() if done and number < generation), default=0)
        staged = [part for part in self._staged() if part.generation < generation]
        due = [part for part in staged if part.generation >= settled and part.epoch <= committed]
        self.publish(due)
        self.remove("staged", (str(part) for part in staged))
        self._undo(generation, committed)
        self.fs.sync_dir(f"{self.inside}/staged")
        self._publish(f"generations/{generation:08d}.settled", {})
        self.remove("drafts", self.fs.list_dir(f"{self.inside}/drafts"))
        old = [(number, done) for number, done in self._generations() if number < generation]
        self.remove("generations", (f"{number:08d}{'.settled' if done else ''}" for number, done in old))

    def _generations(self) -> list[tuple[int, bool]]:
        matches = (_GENERATION.fullmatch(name) for name in self.fs.list_dir(f"{self.inside}/generations"))
        return [(int(match[1]), match[2] is not None) for match in matches if match is not None]

    def _visible(self) -> list[Part]:
        matches = (_VISIBLE.fullmatch(name) for name in self.fs.list_dir(self.path))
        return [part for match in matches if match is not None and (part := parsed(match[1])) is not None]

    def _staged(self) -> list[Part]:
        found = (parsed(name) for name in self.fs.list_dir(f"{self.inside}/staged"))
        return sorted(part for part in found if part is not None)

    def _undo(self, generation: int, committed: int) -> None:
        """Takes out of sight what earlier generations had published after an epoch that the job was restored at."""
        left = [part for part in self._visible() if part.epoch > committed and part.generation < generation]
        if not left:
            return
        for part in left:
            with contextlib.suppress(FileExistsError):
                self.fs.link(f"{self.path}/{part.visible}", f"{self.inside}/undone/{part}")
        self.fs.sync_dir(f"{self.inside}/undone")
        for part in left:
            self.fs.unlink(f"{self.path}/{part.visible}")
        self.fs.sync_dir(self.path)

    # ---- parts

    def stage(self, source: str, part: Part) -> None:
        """Gives a durable file its name under `staged`. The directory is not synced yet."""
        self._link(source, f"{self.inside}/staged/{part}")

    def sync_staged(self) -> None:
        """Makes the names under `staged` durable."""
        self.fs.sync_dir(f"{self.inside}/staged")

    def publish(self, parts: Iterable[Part]) -> None:
        """Makes staged parts visible, durably. Those that are visible already stay."""
        names = [(f"{self.inside}/staged/{part}", f"{self.path}/{part.visible}") for part in parts]
        for staged, visible in names:
            self._link(staged, visible)
        if names:
            self.fs.sync_dir(self.path)

    def _link(self, source: str, target: str) -> None:
        try:
            self.fs.link(source, target)
        except FileExistsError:
            pass  # names are given once: it is the same file
        except FileNotFoundError:
            raise FencedError(
                f"{self.path}: what was to be published is gone: opened again by another meanwhile, or removed by hand"
            ) from None

    def staged_path(self, part: Part) -> str:
        """Where a staged part lies."""
        return f"{self.inside}/staged/{part}"

    def draft_path(self, name: str) -> str:
        """Where a draft lies."""
        return f"{self.inside}/drafts/{name}"

    def remove(self, directory: str, names: Iterable[str]) -> None:
        """Removes files inside; others may have been faster."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self.fs.unlink(f"{self.inside}/{directory}/{name}")

    # ---- documents

    def schema(self) -> pa.Schema | None:
        """The columns of what was written here; None if nothing was."""
        told = self._read(_SCHEMA)
        if told is None:
            return None
        try:
            return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told["schema"], validate=True)))
        except (KeyError, TypeError, ValueError, OSError) as error:  # Arrow raises both for what is none
            raise CorruptionError(f"{self.inside}/{_SCHEMA}", 0, "a schema", type(error).__name__) from None

    def bind_schema(self, schema: pa.Schema) -> None:
        """Says which columns are written here."""
        self._publish(_SCHEMA, {"schema": base64.b64encode(schema.serialize()).decode()})

    def _publish(self, name: str, body: Mapping[str, Any]) -> bool:
        """Makes a document durable under its name; False if another was faster."""
        target = f"{self.inside}/{name}"
        for _ in range(_TRIES):
            draft = uuid.uuid4().hex
            file = self.fs.create(self.draft_path(draft))
            try:
                file.write([encode(name.rpartition("/")[2], dict(body))])
                file.sync()
            finally:
                file.close()
            try:
                self.fs.link(self.draft_path(draft), target)
            except FileExistsError:
                return False
            except FileNotFoundError:
                continue  # another sink is being opened here, and has tidied up
            finally:
                self.remove("drafts", [draft])
            self.fs.sync_dir(target.rpartition("/")[0])
            return True
        raise LsmStateError(f"{self.path}: sinks are being opened here all the time; open one, and go on with it")

    def _read(self, name: str) -> dict[str, Any] | None:
        path = f"{self.inside}/{name}"
        try:
            data = self.fs.read(path, _DOCUMENT_MAX_BYTES)
        except FileNotFoundError:
            return None
        return decode(path, data, name.rpartition("/")[2])[1]
