"""A whole job of checkpoints in one thread: driver, operators, sinks, manifests, catalog, and the network between them.

Discrete events on a simulated clock; all chance comes from the seed. The coordinator is the real one. Operators read
numbered rows, keep them all, and pass them to sinks, which stage and commit them by epoch. Until `FAULTS_UNTIL_S`
things go wrong; then they must come right within `GRACE_S`. What must hold is checked wherever durable state changes.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lsmstate.checkpoint.coordinator.coordinator import CheckpointCoordinator
from tests.support.sim_checkpoint_driver import Driver
from tests.support.sim_checkpoint_parts import Operator, Sink
from tests.support.sim_checkpoint_stores import JOB, Manifest, Manifests, MemoryCatalog, WatchedCatalog

FAULTS_UNTIL_S = 40.0
GRACE_S = 150.0
STEPS_MAX = 20_000
FAULTS = ("driver killed", "second driver", "driver paused", "operator killed", "sink killed", "clock jumped")


class Broken(AssertionError):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Design:
    """Of what a world is made. Planted bugs are other classes here."""

    coordinator: type[CheckpointCoordinator] = CheckpointCoordinator
    driver: type[Driver] = Driver
    operator: type[Operator] = Operator
    sink: type[Sink] = Sink
    catalog: Callable[[], Any] = MemoryCatalog


@dataclass(frozen=True)
class Weather:
    """How likely what goes wrong is, in one world."""

    loss: float
    duplicate: float
    slow: float
    stuck: float
    decline: float
    catalog: float
    write: float

    @classmethod
    def draw(cls, rng: random.Random) -> Weather:
        """Many worlds have none of some faults: then others get further."""
        return cls(*(rng.choice((0.0, 0.0, likely / 3, likely)) for likely in (0.2, 0.3, 0.2, 0.1, 0.1, 0.2, 0.3)))


@dataclass
class World:
    """One run. `run` raises Broken, or returns with the job stopped in good order."""

    seed: int
    design: Design = field(default_factory=Design)

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        self.now, self.wall_offset_ms = 0.0, 1_700_000_000_000
        self.trace: list[tuple[Any, ...]] = []
        self.faults: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()  # what came of them
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self.weather, self.is_calm, self.stop_wanted = Weather.draw(rng), False, False
        self.manifests = Manifests()
        self.operators = {name: self.design.operator(self, name) for name in ("a", "b", "c")[: rng.randint(1, 3)]}
        inputs: list[list[str]] = [[] for _ in range(min(rng.randint(1, 2), len(self.operators)))]
        for number, name in enumerate(self.operators):
            inputs[number % len(inputs)].append(name)
        self.sinks = {f"sink{n}": self.design.sink(self, f"sink{n}", names) for n, names in enumerate(inputs)}
        self.parts: dict[str, Operator | Sink] = {**self.operators, **self.sinks}
        self.catalog = WatchedCatalog(self, self.design.catalog())
        self.drivers: list[Driver] = []
        for _ in range(rng.randint(0, 12)):
            self.at(rng.uniform(0.5, FAULTS_UNTIL_S), self._fault, rng.choice(FAULTS))
        self.at(FAULTS_UNTIL_S, self._calm)
        self._supervise()

    def wall_ms(self) -> int:
        """The clock on the wall, which may jump."""
        return self.wall_offset_ms + int(self.now * 1000)

    def fail(self, text: str) -> None:
        """What must hold does not."""
        tail = "\n".join(map(repr, self.trace[-40:]))
        raise Broken(f"seed {self.seed}, at {self.now:.3f} s: {text}\n{tail}")

    def note(self, *what: Any) -> None:
        """Into the trace."""
        self.trace.append((round(self.now, 6), *what))

    def digest(self) -> str:
        """Of all that happened."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()

    # -- events

    def at(self, time: float, act: Callable[..., None], *given: Any) -> None:
        """Something happens at a time."""
        self._number += 1
        heapq.heappush(self._queue, (time, self._number, act, given))

    def later(self, seconds: float, act: Callable[..., None], *given: Any) -> None:
        """Something happens after a while."""
        self.at(self.now + seconds, act, *given)

    def chance(self, likely: float) -> bool:
        """Whether something goes wrong now."""
        return not self.is_calm and likely > 0 and self.rng.random() < likely

    def send(self, act: Callable[..., None], *given: Any) -> None:
        """A message: late, twice, out of order, or never."""
        if self.chance(self.weather.loss):
            self.faults["message lost"] += 1
            return
        if self.chance(self.weather.duplicate):
            self.faults["message twice"] += 1
            self.later(self.delay(), act, *given)
        self.later(self.delay(), act, *given)

    def delay(self) -> float:
        """Of a message or a write."""
        if self.chance(self.weather.slow):
            self.faults["message late"] += 1
            return self.rng.uniform(0.5, 9.0)
        return self.rng.uniform(0.01, 0.2)

    def to_drivers(self, report: str, *given: Any) -> None:
        """Reports reach every driver that lives: the right one, and those that do not know yet."""
        self.send(self._deliver, report, given)

    def _deliver(self, report: str, given: tuple[Any, ...]) -> None:
        for driver in list(self.drivers):
            driver.deliver(report, given)

    def write_manifest(self, manifest: Manifest, answer: Callable[[bool], None]) -> None:
        """Lands after a while, or late, or never; what the writer is told need not be what happened."""
        if self.chance(self.weather.write):
            self.faults["manifest write odd"] += 1
            lands, told, after = self.rng.choice(((30, True, 31), (3, False, 1), (None, False, 1), (8, False, 2)))
            if lands is not None:
                self.later(self.rng.uniform(0.2, lands), self._land, manifest)
            self.later(after, answer, told)
            return
        self.later(0.1, self._land, manifest)
        self.later(0.11, answer, True)

    def _land(self, manifest: Manifest) -> None:
        self.note("manifest", manifest.id, manifest.epoch)
        if manifest.id in self.manifests.saved:
            self.fail(f"manifest {manifest.id} is written twice")
        self.manifests.saved[manifest.id] = manifest

    # -- faults

    def _supervise(self) -> None:
        self.drivers = [driver for driver in self.drivers if driver.is_alive]
        if not self.drivers and not self.has_stopped:
            self.drivers.append(self.design.driver(self))
        self.later(2.0, self._supervise)

    @property
    def has_stopped(self) -> bool:
        return self.catalog.stopped_at is not None

    def _fault(self, kind: str) -> None:
        self.faults[kind] += 1
        self.note("fault", kind)
        if kind == "second driver":
            self.drivers.append(self.design.driver(self))
        elif kind == "clock jumped":
            self.wall_offset_ms += self.rng.choice((-1, 1)) * self.rng.choice((500, 60_000, 86_400_000))
        elif kind == "operator killed":
            self.rng.choice(list(self.operators.values())).kill()
        elif kind == "sink killed":
            self.rng.choice(list(self.sinks.values())).kill()
        elif self.drivers:
            driver = self.rng.choice(self.drivers)
            if kind == "driver killed":
                driver.die("killed")
            else:
                driver.paused_until = self.now + self.rng.uniform(1.0, 12.0)

    def _calm(self) -> None:
        self.is_calm = True
        self.note("calm")

    # -- the run

    def run(self) -> World:
        """To the end: faults, then calm, two more epochs, and a stop with a last checkpoint."""
        target: int | None = None
        for _ in range(STEPS_MAX):
            self.now, _, act, given = heapq.heappop(self._queue)
            try:
                act(*given)
            except Broken:
                raise
            except Exception as error:
                raise Broken(f"seed {self.seed}, at {self.now:.3f} s: {error!r}") from error
            if not self.is_calm:
                continue
            if target is None:
                target = self.catalog.epoch + 2
            self.stop_wanted = self.catalog.epoch >= target
            if self.catalog.stopped_at is not None and self.catalog.stopped_at <= self.now - 3.0:
                return self._finish()
            if self.now > FAULTS_UNTIL_S + GRACE_S:
                self.fail(f"hangs: epoch {self.catalog.epoch} of {target}, {GRACE_S:g} s after the last fault")
        self.fail("hangs: too many steps")
        return self

    def _finish(self) -> World:
        for sink in self.sinks.values():
            if sink.committed != self.catalog.epoch:
                self.fail(f"{sink.name} is at epoch {sink.committed}, the catalog at {self.catalog.epoch}")
        if self.catalog.inner.job(JOB).latest_checkpoint_epoch != self.catalog.epoch:
            self.fail("the catalog has forgotten an epoch")
        return self
