"""The check of the crash tests: what a disk image holds, whether it may, and whether one can go on from it.

Every image is opened and read at every retained epoch; then a row is appended and committed, the power goes again,
and the outcome is read. To be fast enough for a hundred thousand images, what is a pure function of unchanged bytes
is computed once: an open SSTable is kept by its content, and the rows of a view by the content of its files, its
tombstones and its watermark. What an image holds is kept by its digest, because the same disk may be left by crashes
at several points.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final

from lsmstate import LsmStateError, NotAStateError, Options, StateStore
from lsmstate.engine.view import View
from lsmstate.manifest import names
from lsmstate.refs import FileRef
from lsmstate.schema import Side
from lsmstate.sstable.cache import FileCache
from lsmstate.sstable.reader import SSTable
from tests.support.crash import crash_images, crash_points
from tests.support.crash_workload import SECOND, SIDES, Candidate, Epochs, InlinePool, Row, Rows, Story, batch, rows_of
from tests.support.simdisk import DIR, Dirs, Disk, Inode, replaced
from tests.support.simfs import SimFileSystem

AGAIN: Final[Row] = (4711, 500 * SECOND, "again")  # younger than any watermark of a workload
_AGAIN_BATCH = batch(0, [AGAIN])
NO_ROWS: Final[Rows] = ((),) * len(SIDES)
_POOL = InlinePool()
_VERIFY_EVERY = 64


class Broken(AssertionError):
    """An image does not hold what it must."""


class SharedFiles(FileCache):
    """The open SSTables of all images that hold the same bytes."""

    def __init__(self, image: SimFileSystem, tables: dict[tuple[bytes, FileRef], SSTable]) -> None:
        super().__init__()
        self._mounted, self._disk = image.point(0).durable, image._disk
        self._tables = tables

    def __bool__(self) -> bool:
        return True  # also while nothing is open: `cache or FileCache()` must not discard it

    def get(self, fs: object, directory: str, ref: FileRef, sides: Mapping[int, Side]) -> SSTable:
        content = self.content(directory, ref.name)
        table = self._tables.get((content, ref)) if content else None
        if table is None:
            table = super().get(fs, directory, ref, sides)
            if content:
                self._tables[content, ref] = table
        return table

    def content(self, directory: str, name: str) -> bytes | None:
        """The digest of a file that was there when the image was mounted, or is by now; None if it still grows."""
        node = self._mounted.get(directory, {}).get(name) or self._disk.dirs.get(directory, {}).get(name)
        return node.digest() if isinstance(node, Inode) and node.closed else None


class Checker:
    """Checks the images of one workload; of one in `go_on_every` also whether one can go on from it.

    `verify`, which reads every byte, is asked at one reading in sixty-four.
    """

    def __init__(self, stories: Iterable[Story], options: Options, *, go_on_every: int = 1) -> None:
        self.stories, self._options, self._go_on_every = list(stories), options, go_on_every
        self._attempt = "first"  # the same for all images, so that equal work gives equal bytes
        self._held: dict[bytes, list[Epochs | None]] = {}
        self._reads = 0
        self._committed: set[tuple[bytes, int]] = set()
        self._tables: dict[tuple[bytes, FileRef], SSTable] = {}
        self._rows: dict[object, Rows] = {}

    @property
    def images(self) -> int:
        """How many different disks were recovered."""
        return len(self._held)

    def check(self, image: SimFileSystem, at: int) -> None:
        """Raises Broken unless the image is one that a crash after `at` entries of the journal may leave."""
        digest = image.digest()
        try:
            self._commit_candidates(image, digest, at)
            held = self._held_by(image, digest)
        except Broken as error:
            raise Broken(f"a crash after {at} entries of the journal: {error}") from error
        for story, epochs in zip(self.stories, held, strict=True):
            if not story.allows(epochs, at):
                raise Broken(f"a crash after {at} entries left {epochs} in {story.path}, not {story.allowed(at)}")

    def check_recovery(self, image: SimFileSystem, rng: random.Random, limit: int) -> None:
        """Cuts the power once more, at every operation of recovering the image and going on. Requires: a fresh one."""
        self._attempt = "first"
        held = [self.recover(image, story) for story in self.stories]
        self._attempt = "second"
        for at in crash_points(image):
            for second in crash_images(image, at, rng, limit):
                for first, then in zip(held, self._held_by(second, second.digest()), strict=True):
                    if then not in (first, None if first is None else self._with_again(first)):
                        raise Broken(f"a crash after {at} entries of a recovery made {then} of {first}")

    def go_on(self, store: StateStore, image: SimFileSystem, story: Story, epochs: Epochs) -> None:
        """Commits one more epoch to a state that holds `epochs`; raises Broken unless that survives a power cut."""
        try:
            store.append(0, _AGAIN_BATCH)
            store.snapshot_epoch(_next(epochs))
        except Exception as error:
            raise Broken(f"{story.path}: going on from {epochs} raised {error!r}") from error
        self.expect(unsynced_lost(image), story, self._with_again(epochs))

    def expect(self, image: SimFileSystem, story: Story, *allowed: Epochs) -> None:
        """Raises Broken unless the state holds just this, or one of these."""
        store = self.open(image, story)
        found = None if store is None else self.read(store, story)
        if found not in allowed:
            raise Broken(f"{story.path}: holds {found}, not {allowed}, which was acknowledged")

    def open(self, image: SimFileSystem, story: Story) -> StateStore | None:
        """A handle; None if there is no state. Raises Broken for any exception that is not allowed."""
        try:
            return self._open(image, story)
        except NotAStateError as error:
            if story.created:
                raise Broken(f"{story.path}: opening with sides raised {error!r}") from error
            return None
        except Exception as error:
            raise Broken(f"{story.path}: opening raised {error!r}") from error

    def read(self, store: StateStore, story: Story) -> Epochs:
        """What a state holds in each retained epoch. Raises Broken for any exception."""
        try:
            found = self._read(store)
            self._reads += 1
            if self._reads % _VERIFY_EVERY == 0 and (problems := store.verify()):
                raise Broken(f"{story.path}: verify found {problems}")
        except (OSError, LsmStateError) as error:
            raise Broken(f"{story.path}: reading raised {error!r}") from error
        return next((p.epochs for p in story.publications if p.epochs == found), found)

    # ---- one image

    def _held_by(self, image: SimFileSystem, digest: bytes) -> list[Epochs | None]:
        held = self._held.get(digest)
        if held is None:
            held = self._held[digest] = [self.recover(image, story) for story in self.stories]
        return held

    def recover(self, image: SimFileSystem, story: Story) -> Epochs | None:
        """What a state holds; that one can go on from there is checked on the way."""
        store = self.open(image, story)
        if store is None:
            return None
        epochs = self.read(store, story)
        if len(self._held) % self._go_on_every == 0:
            self.go_on(store, image, story, epochs)
        return epochs

    def _commit_candidates(self, image: SimFileSystem, digest: bytes, at: int) -> None:
        """A prepared epoch can be committed by whoever comes next."""
        for story in self.stories:
            for candidate in story.candidates:
                if candidate.prepared <= at <= candidate.ended and (digest, candidate.epoch) not in self._committed:
                    self._committed.add((digest, candidate.epoch))
                    self.commit(image.copy(), story, candidate)

    def commit(self, image: SimFileSystem, story: Story, candidate: Candidate) -> None:
        """Commits what another handle has prepared; raises Broken unless it is there after a power cut."""
        try:
            self._open(image, story).commit(candidate.epoch)
        except Exception as error:
            raise Broken(f"{story.path}: committing prepared epoch {candidate.epoch} raised {error!r}") from error
        self.expect(unsynced_lost(image), story, candidate.epochs)

    def _open(self, image: SimFileSystem, story: Story) -> StateStore:
        return StateStore.open(
            story.path,
            SIDES if story.created else None,
            self._options,
            fs=image,
            pool=_POOL,
            cache=SharedFiles(image, self._tables),
            attempt=self._attempt,
        )

    def _read(self, store: StateStore) -> Epochs:
        epochs = {}
        for epoch in store.epochs():
            with store.at_epoch(epoch) as view:
                epochs[epoch] = self._rows_of(store, view)
        with store.snapshot() as view:
            rows = self._rows_of(store, view)
        if rows != (epochs[max(epochs)] if epochs else NO_ROWS):
            raise Broken(f"{store!r} opens with {rows}, and its epochs are {epochs}")
        return epochs

    def _rows_of(self, store: StateStore, view: View) -> Rows:
        directory, cache = f"{store._core.path}/{names.SST_DIR}", store._core.cache
        files = {name: cache.content(directory, name) for name in view.files}
        if None in files.values():
            return rows_of(view)
        key = (frozenset(files.items()), view._tombstones, view.watermark)
        if key not in self._rows:
            self._rows[key] = rows_of(view)
        return self._rows[key]

    def _with_again(self, epochs: Epochs) -> Epochs:
        numbers, words = epochs[max(epochs)] if epochs else NO_ROWS
        after = {**epochs, _next(epochs): (tuple(sorted([*numbers, AGAIN])), words)}
        return dict(list(after.items())[-self._options.retain :])


def unsynced_lost(fs: SimFileSystem) -> SimFileSystem:
    """The disk that a power cut leaves now if nothing survives that was not synced: as `crash_images`, but quicker."""
    point = fs.point(len(fs.journal))
    dirs: Dirs = {}
    for path, entries in point.durable.items():  # parents come first
        parent, _, name = path.rpartition("/")
        if not path or (parent in dirs and dirs[parent].get(name) is DIR):
            dirs[path] = entries
    files = {node: Inode(node.data()[: state.synced]) for node, state in point.unsettled.items()}
    return SimFileSystem(Disk(replaced(dirs, files)))


def _next(epochs: Epochs) -> int:
    return max(epochs, default=0) + 1
