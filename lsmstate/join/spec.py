"""What a join is: everything that its tasks need to agree on, and that a state is bound to.

A `JoinSpec` travels to the workers with the task, and lies in the state directory as the file JOB, so that a state is
never continued by another join than the one that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from lsmstate.errors import CorruptionError
from lsmstate.evolution import refusal
from lsmstate.join.condition import Condition
from lsmstate.join.kinds import ASOF, INSTANT, INTERVAL, Kind
from lsmstate.join.pace import Pace
from lsmstate.join.partition import PARTITIONS_MAX
from lsmstate.join.shape import Shape, state_sides
from lsmstate.schema import Side

SIDES = ("left", "right")
_BOUND = {
    "partitions": "partitions",
    "match": "the way in which rows meet",
    "how": "how",
    "lower_us": "the lower bound of the times",
    "upper_us": "the upper bound of the times",
}
_NUMBERS = ("partitions", "lower_us", "upper_us")


@dataclass(frozen=True)
class JoinSpec:
    """A join of two streams by key and time.

    pace: how the watermark follows the rows. retain: how many epochs can be opened. keeps_late: whether late rows are
    kept. max_jump_us: rows further after the newest are set aside. These and the condition may change from run to
    run; all else is bound to the state.
    """

    job: str
    path: str
    partitions: int
    kind: Kind
    sides: tuple[Side, Side]
    pace: Pace
    retain: int
    condition: Condition | None = None
    keeps_late: bool = False
    max_jump_us: int | None = None
    suffixes: tuple[str, str] = ("", "_right")

    @cached_property
    def shape(self) -> Shape:
        """The join without its place."""
        return Shape(self.sides, self.kind, self.condition, self.suffixes)

    @property
    def waits(self) -> bool:
        """Whether anything comes out because the watermark moves."""
        return self.kind.match != INTERVAL or self.kind.comes_alone(0) or self.kind.comes_alone(1)

    def describe(self) -> dict[str, Any]:
        """As JSON: what the state is bound to."""
        kind = self.kind
        bound = {"match": kind.match, "how": kind.how, "lower_us": kind.lower_us, "upper_us": kind.upper_us}
        sides = [side.describe() for side in self.sides]
        return {"job": self.job, "partitions": self.partitions, **bound, "sides": sides}

    def __getstate__(self) -> dict[str, Any]:
        told = {name: value for name, value in self.__dict__.items() if name != "shape"}
        return {**told, "sides": [side.describe() for side in self.sides]}

    def __setstate__(self, told: dict[str, Any]) -> None:
        self.__dict__.update(told, sides=tuple(Side.parse(side) for side in told["sides"]))


@dataclass(frozen=True)
class Job:
    """What a state is bound to, as its file JOB tells."""

    name: str
    partitions: int
    kind: Kind
    sides: tuple[Side, Side]

    @property
    def state_sides(self) -> tuple[Side, ...]:
        """All sides of the states of its partitions."""
        return state_sides(self.sides, self.kind)

    @classmethod
    def parse(cls, path: str, told: Mapping[str, Any]) -> Job:
        """What `JoinSpec.describe` told of; `path` is where it stands."""
        try:
            if any(type(told[name]) is not int for name in _NUMBERS):
                raise TypeError("what is bound is told by whole numbers")
            if told["match"] not in (INTERVAL, INSTANT, ASOF):
                raise ValueError("no way in which rows meet")
            kind = Kind(told["match"], told["how"], told["lower_us"], told["upper_us"])
            left, right = (Side.parse(side) for side in told["sides"])
            job = cls(str(told["job"]), told["partitions"], kind, (left, right))
        except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise CorruptionError(path, 0, "the description of a join", type(error).__name__) from error
        if not 1 <= job.partitions <= PARTITIONS_MAX:
            raise CorruptionError(path, 0, "two sides and some partitions", "others")
        return job


def differences(stored: Mapping[str, Any], spec: JoinSpec) -> list[str]:
    """In words, what has changed between a state and the join that wants to continue it."""
    now = spec.describe()
    told = [
        f"{label} was {stored[name]} and is now {now[name]}"
        for name, label in _BOUND.items()
        if stored[name] != now[name]
    ]
    for name, was, side in zip(SIDES, stored["sides"], spec.sides, strict=True):
        change = refusal(Side.parse(was), side)
        if change is not None and not (change.startswith("retention_us") and told):  # follows from the interval
            told.append(f"{name}: {change}")
    return told
