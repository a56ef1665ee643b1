"""What a join is: everything that its tasks need to agree on, and that a state is bound to.

A `JoinSpec` travels to the workers with the task, and lies in the state directory as the file JOB, so that a state is
never continued by another join than the one that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from lsmstate.errors import CorruptionError
from lsmstate.join.partition import PARTITIONS_MAX
from lsmstate.schema import Side, difference

SIDES = ("left", "right")
_BOUND = {"partitions": "partitions", "lower_us": "the lower bound of within", "upper_us": "the upper bound of within"}


@dataclass(frozen=True)
class JoinSpec:
    """A join of two streams by key and time: lower <= right.ts - left.ts <= upper.

    watermark_us: how late rows of each side may come. retain: how many epochs can be opened. The last two may change
    from run to run; all else is bound to the state.
    """

    job: str
    path: str
    partitions: int
    lower_us: int
    upper_us: int
    sides: tuple[Side, Side]
    watermark_us: tuple[int, int]
    retain: int

    def describe(self) -> dict[str, Any]:
        """As JSON: what the state is bound to."""
        bound = {name: getattr(self, name) for name in _BOUND}
        return {"job": self.job, **bound, "sides": [side.describe() for side in self.sides]}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "sides": [side.describe() for side in self.sides]}

    def __setstate__(self, told: dict[str, Any]) -> None:
        self.__dict__.update(told, sides=tuple(Side.parse(side) for side in told["sides"]))


@dataclass(frozen=True)
class Job:
    """What a state is bound to, as its file JOB tells."""

    name: str
    partitions: int
    lower_us: int
    upper_us: int
    sides: tuple[Side, ...]

    @classmethod
    def parse(cls, path: str, told: Mapping[str, Any]) -> Job:
        """What `JoinSpec.describe` told of; `path` is where it stands."""
        try:
            if any(type(told[name]) is not int for name in _BOUND):
                raise TypeError("what is bound is told by whole numbers")
            sides = tuple(Side.parse(side) for side in told["sides"])
            job = cls(str(told["job"]), told["partitions"], told["lower_us"], told["upper_us"], sides)
        except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise CorruptionError(path, 0, "the description of a join", type(error).__name__) from error
        if not 1 <= job.partitions <= PARTITIONS_MAX or len(job.sides) != len(SIDES):
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
        change = difference(Side.parse(was), side)
        if change is not None and not (change.startswith("retention_us") and told):  # follows from the interval
            told.append(f"{name}: {change}")
    return told


def retentions(lower_us: int, upper_us: int) -> tuple[timedelta, timedelta]:
    """How long rows of each side can still meet rows that are not late: left rows till `upper`, right till `-lower`."""
    return timedelta(microseconds=max(upper_us, 0)), timedelta(microseconds=max(-lower_us, 0))
