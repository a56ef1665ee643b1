"""Two things timed in turns, so that a noisy machine is noisy for both: A B, B A, A B, ...

The figure is the median over the pairs of time(B) / time(A); a pair shares its moment, so what slows one slows
the other. `compare` is given callables that do one unit of work each, and may prepare them untimed.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds per run of each, by pair, in the order they were taken."""

    a_name: str
    b_name: str
    a_seconds: tuple[float, ...]
    b_seconds: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times as long B took as A, by pair."""
        return [b / a for a, b in zip(self.a_seconds, self.b_seconds, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest ratio."""
        return min(self.ratios), max(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the ratios is below the first, a quarter above the second."""
        if len(self.ratios) < 2:
            return self.ratio, self.ratio
        first, _, third = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return first, third

    def __str__(self) -> str:
        a_ms, b_ms = (statistics.median(s) * 1e3 for s in (self.a_seconds, self.b_seconds))
        return (
            f"{self.a_name} {a_ms:.1f} ms, {self.b_name} {b_ms:.1f} ms: ratio {self.ratio:.2f} "
            f"(quartiles {self.quartiles[0]:.2f}..{self.quartiles[1]:.2f}, "
            f"all {self.spread[0]:.2f}..{self.spread[1]:.2f}, {len(self.ratios)} pairs)"
        )


def compare(
    a: Callable[[], object],
    b: Callable[[], object],
    *,
    pairs: int,
    warmups: int = 1,
    names: tuple[str, str] = ("A", "B"),
    before: tuple[Callable[[], object], Callable[[], object]] | None = None,
) -> Comparison:
    """Time `a` and `b` in turns, the first of a pair changing from pair to pair.

    `before` holds what runs untimed ahead of each run of `a` and of `b`: it makes the next batch, or lets threads end;
    warm-up pairs are run in the same way and not counted.
    """
    if pairs < 1:
        raise ValueError(f"at least one pair is needed to compare, not {pairs}")
    seconds: dict[int, list[float]] = {0: [], 1: []}
    for pair in range(warmups + pairs):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            if before is not None:
                before[which]()
            took = timed(b if which else a)
            if pair >= warmups:
                seconds[which].append(took)
    return Comparison(*names, tuple(seconds[0]), tuple(seconds[1]))


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes with the garbage collector emptied before and still during it."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        result = work()  # kept until the clock stops: freeing a result is not part of the work
        took = time.perf_counter() - start
    finally:
        if was_enabled:
            gc.enable()
    del result
    return took
