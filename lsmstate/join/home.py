"""The home of a join: one directory, shared by the driver and all tasks.

    JOB                       what the state is bound to: job, partitions, sides, interval
    JOB-NUMBER                the same since the columns changed (evolution.py); the last one counts
    lines/NUMBER              each history after the first: the epoch that it starts from (lines.py)
    runs/NUMBER               each run of a query that has worked here, in order; an older one gives up (runs.py)
    barriers/LINE-EPOCH       the barrier of each epoch (barrier.py)
    checkpoints/              checkpoints that a catalog knows (checkpoints.py)
    locks/PARTITION           held by whoever retires epochs of a partition, and while a line is made
    ticks/NUMBER              asks for a batch without data
    p-00000/ ...              a state of the engine for each partition, a range of key hashes

Documents are written whole under a draft's name, fsynced, and published by a link: exactly one writer wins, and nobody
ever reads half of one.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Mapping
from typing import Any

from iopool import FileLock, FileSystem, make_dirs
from lsmstate.errors import CorruptionError, NotAStateError, SchemaError
from lsmstate.join.spec import Job, JoinSpec, differences
from lsmstate.manifest import names
from lsmstate.manifest.codec import DOCUMENT_MAX_BYTES, NESTED, PLAIN, decode, encode

JOB = "JOB"
RUNS = "runs"
LINES = "lines"
BARRIERS = "barriers"
TICKS = "ticks"
CHECKPOINTS = "checkpoints"
_DRAFTS = "drafts"
_LOCKS = "locks"
_DIRS = (BARRIERS, _DRAFTS, LINES, _LOCKS, RUNS, TICKS)
_CHANGED = re.compile(r"JOB-([0-9]{6})")
_PARTITION = re.compile(r"p-([0-9]{5})")


class Home:
    """The directory of one join."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs, self.path = fs, path

    def partition(self, number: int) -> str:
        """Where the state of a partition lies."""
        return f"{self.path}/p-{number:05d}"

    def partitions_made(self) -> list[int]:
        """The partitions that have a directory, ascending."""
        matches = (_PARTITION.fullmatch(name) for name in self.fs.list_dir(self.path))
        return sorted(int(match[1]) for match in matches if match is not None)

    def listed(self, directory: str) -> list[str]:
        """The names in one of the directories, in order."""
        return sorted(self.fs.list_dir(f"{self.path}/{directory}"))

    def numbers(self, directory: str) -> list[int]:
        """The numbers that are the names in one of the directories, ascending."""
        return sorted(int(name) for name in self.listed(directory) if name.isascii() and name.isdigit())

    # ---- documents

    def publish(self, directory: str, name: str, body: Mapping[str, Any], version: int = PLAIN) -> bool:
        """Makes a document durable under its name; False if another writer was faster."""
        draft = f"{self.path}/{_DRAFTS}/{uuid.uuid4().hex}"
        file = self.fs.create(draft)
        try:
            file.write([encode(name, dict(body), version)])
            file.sync()
        finally:
            file.close()
        where = f"{self.path}/{directory}" if directory else self.path
        try:
            self.fs.link(draft, f"{where}/{name}")
        except FileExistsError:
            return False
        finally:
            self.fs.unlink(draft)
        self.fs.sync_dir(where)
        return True

    def read(self, directory: str, name: str) -> dict[str, Any] | None:
        """A published document; None if there is none."""
        path = f"{self.path}/{directory}/{name}" if directory else f"{self.path}/{name}"
        try:
            data = self.fs.read(path, DOCUMENT_MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return decode(path, data, name)[1]

    def settle(self, directory: str) -> None:
        """Makes durable what is published in a directory, whoever did it."""
        self.fs.sync_dir(f"{self.path}/{directory}")

    def remove(self, directory: str, name: str) -> None:
        """Removes a document; another may have been faster."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.unlink(f"{self.path}/{directory}/{name}")

    def lock(self, partition: int) -> FileLock | None:
        """Held while epochs of a partition are retired, and while a line is made; None if another holds it."""
        path = f"{self.path}/{_LOCKS}"
        try:
            return self.fs.lock(f"{path}/{partition:05d}")
        except FileNotFoundError:  # made before there were locks, or a copy that lost an empty directory
            self.fs.make_dir(path)
            return self.fs.lock(f"{path}/{partition:05d}")

    # ---- the job

    def bind(self, spec: JoinSpec) -> None:
        """Binds a new directory to a join, or finds it bound to this one. Raises if it is bound to another."""
        stored = self.job()
        if stored is None:
            self._create(spec)
            stored = self.job()
        assert stored is not None
        bound = Job.parse(f"{self.path}/{JOB}", stored)
        if bound.name != spec.job:
            told = f"the state of job {bound.name!r}, not of {spec.job!r}"
            raise NotAStateError(f"{self.path}: {told}; name another state=")
        changed = differences(stored, spec)
        if changed:
            raise SchemaError(
                f"{self.path}: the join has changed since the state was made: {'; '.join(changed)}. "
                "Continue it as it was, or start anew with another state= and another checkpointLocation"
            )
        if [side.schema_id for side in bound.sides] != [side.schema_id for side in spec.sides]:
            self._publish_job(f"{JOB}-{self._changes() + 1:06d}", spec)
            if self.job() != spec.describe():
                raise SchemaError(
                    f"{self.path}: another query changes the columns at the same time; start this one again"
                )
        for name in _DIRS:  # copies of a state tend to lose empty directories
            self.fs.make_dir(f"{self.path}/{name}")
        self.fs.sync_dir(self.path)

    def job(self) -> dict[str, Any] | None:
        """What the state is bound to; None if it does not exist."""
        kind = self.fs.kind(self.path)
        if kind is not None and kind != "dir":
            raise NotAStateError(f"{self.path}: is not a directory; name another state=")
        if kind == "dir":
            self._check_dirs()
        changes = self._changes() if kind is not None else 0
        return self.read("", f"{JOB}-{changes:06d}" if changes else JOB)

    def _changes(self) -> int:
        """How often the columns have changed."""
        matches = (_CHANGED.fullmatch(name) for name in self.fs.list_dir(self.path))
        return max((int(match[1]) for match in matches if match is not None), default=0)

    def _check_dirs(self) -> None:
        """What lies inside a home is its own: a link would lead readers and collectors out of it."""
        for name in self.fs.list_dir(self.path):
            ours = name in _DIRS or name == CHECKPOINTS or _PARTITION.fullmatch(name)
            if ours and self.fs.kind(f"{self.path}/{name}") not in ("dir", None):
                raise NotAStateError(
                    f"{self.path}/{name}: is not a directory; links inside a state are not followed, whoever made "
                    "them: put the directory itself there"
                )

    def _create(self, spec: JoinSpec) -> None:
        make_dirs(self.fs, self.path)
        foreign = [name for name in sorted(self.fs.list_dir(self.path)) if name not in _DIRS]
        if foreign:
            raise NotAStateError(f"{self.path}: holds {foreign[0]!r} and is no state of a join; name another state=")
        for name in _DIRS:
            self.fs.make_dir(f"{self.path}/{name}")
        self.fs.sync_dir(self.path)
        self._publish_job(JOB, spec)

    def _publish_job(self, name: str, spec: JoinSpec) -> None:
        self.publish("", name, spec.describe(), NESTED if any(side.is_nested for side in spec.sides) else PLAIN)


def is_home(fs: FileSystem, path: str) -> bool:
    """Whether a directory is the home of a join, or what is left of one that has lost its JOB."""
    if fs.kind(path) != "dir":
        return False
    listed = fs.list_dir(path)
    if names.STATE in listed or (JOB not in listed and BARRIERS not in listed):
        return False
    kinds = {name: fs.kind(f"{path}/{name}") for name in listed}
    if kinds.get(BARRIERS) == "dir":
        return JOB in listed or any(_PARTITION.fullmatch(name) and kind == "dir" for name, kind in kinds.items())
    try:
        return kinds.get(JOB) == "file" and Home(fs, path).job() is not None
    except CorruptionError:
        return False  # a file of somebody else that has this name


def home_of(fs: FileSystem, path: str) -> str | None:
    """The home that a directory is a partition of; None if it is none."""
    above, _, name = path.rpartition("/")
    return above if _PARTITION.fullmatch(name) and is_home(fs, above) else None
