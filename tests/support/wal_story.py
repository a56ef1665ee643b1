"""A disk with a state that has a write-ahead log, its journal, and what a crash at each of its points may leave.

Each call is recorded with the length of the journal before and after it. A crash leaves what the last finished call
left, or what the one under way leaves, and nothing else: every acknowledged write, in order, none half.
Threading: one thread; spills run at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from iopool import FileSystem
from lsmstate import LsmStateError, Options, StateStore
from tests.support.crash import crash_images
from tests.support.crash_check import Broken, unsynced_lost
from tests.support.crash_kill import killed
from tests.support.crash_workload import SECOND, SIDES, InlinePool, Moment, Row, Rows, batch, rows_of
from tests.support.simfs import SimFileSystem

PATH = "/state"
AGAIN: Row = (4711, 900 * SECOND, "again")
MORE: Row = ("more", 900 * SECOND, 1)


def number(n: int) -> Row:
    """A row of side 0."""
    return (n, n * SECOND, f"value {n}")


def word(n: int) -> Row:
    """A row of side 1."""
    return (f"key {n}", n * SECOND, n)


@dataclass(frozen=True)
class Held:
    """What a state shows: its rows now, and those of each retained epoch."""

    now: Rows
    epochs: Mapping[int, Rows]


@dataclass(frozen=True)
class Call:
    """One call: the journal's length before and after, and what the state holds durably once it is done."""

    begun: int
    done: int
    held: Held


def open_wal(fs: FileSystem, durability: str = "wal", *, attempt: str | None = None, **options: Any) -> StateStore:
    """The state, opened to write."""
    told = Options(durability=durability, auto_compact=False, **options)
    return StateStore.open(PATH, SIDES, told, fs=fs, pool=InlinePool(), attempt=attempt)


def held_by(store: StateStore) -> Held:
    """What can be read of a state."""
    epochs = {}
    for epoch in store.epochs():
        with store.at_epoch(epoch) as view:
            epochs[epoch] = rows_of(view)
    return Held(rows_of(store), epochs)


@dataclass(frozen=True)
class Prepared:
    """An epoch that was prepared, by a handle that logs or by one that does not."""

    epoch: int
    name: str
    moment: Moment
    by: StateStore
    logs: bool


@dataclass
class Story:
    """A disk, the handle that writes, and its model. `now` is what it shows, `durable` what it has promised to keep."""

    disk: SimFileSystem = field(default_factory=SimFileSystem)
    seen: FileSystem | None = None  # what the store sees, which may lie
    memtable_bytes: int = 1 << 20
    calls: list[Call] = field(default_factory=list)
    now: Moment = field(default_factory=Moment)
    durable: Moment = field(default_factory=Moment)
    past: dict[int, Moment] = field(default_factory=dict)
    prepared: Prepared | None = None
    handles: int = 0

    def __post_init__(self) -> None:
        self.open()

    def open(self, durability: str = "wal") -> None:
        """Goes on with a new handle; the one before is left alone, as after a kill."""
        self.logs = durability == "wal"
        begun = len(self.disk.journal)
        self.handles += 1
        fs = self.seen or self.disk
        self.store = open_wal(fs, durability, attempt=f"w{self.handles}", memtable_bytes=self.memtable_bytes, retain=3)
        self.now = self.durable
        self._record(begun)

    def append(self, side: int, *rows: Row) -> None:
        after = self.now.with_rows(side, [*self.now.rows[side], *rows])
        self._write(lambda: self.store.append(side, batch(side, rows)), after)

    def remove(self, side: int, start: int, end: int) -> None:
        left = [row for row in self.now.rows[side] if not start <= row[1] < end]
        self._write(lambda: self.store.remove(side, start, end), self.now.with_rows(side, left))

    def advance(self, ts: int) -> None:
        after = replace(self.now, watermark=max(ts, self.now.watermark or ts))
        self._write(lambda: self.store.advance_watermark(ts), after)

    def _write(self, act: Callable[[], object], after: Moment) -> None:
        begun = len(self.disk.journal)
        act()
        self.now = after
        if self.logs:
            self.durable = after
        self._record(begun)

    def epoch(self, epoch: int) -> None:
        begun = len(self.disk.journal)
        self.store.snapshot_epoch(epoch)
        self._committed(epoch, self.now, self.logs)
        self._record(begun)

    def prepare(self, epoch: int) -> None:
        begun = len(self.disk.journal)
        name = self.store.prepare(epoch)
        self.prepared = Prepared(epoch, name, self.now, self.store, self.logs)
        self._record(begun)

    def commit(self) -> None:
        assert self.prepared is not None
        begun = len(self.disk.journal)
        prepared = self.prepared
        self.store.commit(prepared.epoch, candidate=prepared.name)
        self._committed(prepared.epoch, prepared.moment, prepared.logs)
        if prepared.by is not self.store:
            self.now = self.durable
        self._record(begun)

    def abort(self) -> None:
        assert self.prepared is not None
        begun = len(self.disk.journal)
        self.store.abort(self.prepared.epoch)
        self.prepared = None
        self._record(begun)

    def restore(self, epoch: int) -> None:
        begun = len(self.disk.journal)
        self.store.restore(epoch)
        self.past = {e: m for e, m in self.past.items() if e <= epoch}
        self.now = self.durable = self.past[epoch]
        self.prepared = None
        self._record(begun)

    def _committed(self, epoch: int, moment: Moment, logs: bool) -> None:
        self.past = dict(list({**self.past, epoch: moment}.items())[-3:])
        self.prepared = None
        if not logs:
            self.durable = moment

    def held(self) -> Held:
        """What must be found if the power goes now."""
        return Held(self.durable.visible(), {epoch: moment.visible() for epoch, moment in self.past.items()})

    def _record(self, begun: int) -> None:
        self.calls.append(Call(begun, len(self.disk.journal), self.held()))

    def allowed(self, at: int) -> list[Held]:
        """What a crash after `at` entries of the journal may leave."""
        done = [call.held for call in self.calls if call.done <= at]
        under_way = [call.held for call in self.calls if call.begun < at < call.done]
        return [*(done[-1:] or [Held(Moment().visible(), {})]), *under_way]


def check_image(story: Story, image: SimFileSystem, at: int, durability: str = "wal", *, go_on: bool = True) -> None:
    """Raises Broken unless an image holds what it may, and one can go on from it without losing anything."""
    try:
        check_held(image, story.allowed(at), durability, go_on=go_on)
    except Broken as error:
        raise Broken(f"a crash after {at} entries: {error}") from error
    except (LsmStateError, OSError) as error:
        raise Broken(f"a crash after {at} entries: {error!r}") from error


def check_held(image: SimFileSystem, allowed: list[Held], durability: str = "wal", *, go_on: bool = True) -> None:
    """Raises Broken unless a state holds one of these; with `go_on` also unless it keeps it, and what is appended and
    committed then, through other power cuts."""
    store = open_wal(image, durability)
    held = held_by(store)
    if held not in allowed:
        raise Broken(f"holds {held}, not one of {allowed}")
    if not go_on:
        return
    if problems := store.verify():
        raise Broken(f"verify found {problems}")
    if durability != "wal":
        store = open_wal(image)
    store.append(0, batch(0, [AGAIN]))
    image = unsynced_lost(image)
    store = open_wal(image)
    numbers, words = held.now
    expected = (tuple(sorted([*numbers, AGAIN])), words)
    if rows_of(store) != expected:
        raise Broken(f"lost what was appended, or more: {rows_of(store)}, not {expected}")
    store.append(1, batch(1, [MORE]))
    store.snapshot_epoch(max(held.epochs, default=0) + 1)
    expected = (expected[0], tuple(sorted([*words, MORE])))
    store = open_wal(unsynced_lost(image), "epoch")
    if rows_of(store) != expected:
        raise Broken(f"lost what was committed, or more: {rows_of(store)}, not {expected}")


def images(story: Story, seed: str, limit: int) -> Iterator[tuple[int, SimFileSystem]]:
    """Disks that crashes leave, a few for each point of the journal."""
    rng = random.Random(seed)
    for at in range(len(story.disk.journal) + 1):
        for image in crash_images(story.disk, at, rng, limit):
            yield at, image


def check_kills(story: Story, every: int = 1) -> None:
    """A killed process, then another, then a power cut: what the second saw and acknowledged must be there."""
    for at in range(0, len(story.disk.journal) + 1, every):
        check_image(story, killed(story.disk, at), at)
