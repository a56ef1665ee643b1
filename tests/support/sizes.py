"""How much each long test does: one table for the default run, the full one and the endless one.

`LSMSTATE_TEST_SIZE` chooses: nothing or `default` (`make test`), `full` (`make test-full`, made for 75 minutes on two
cores), `endless` (`make test-endless`: the sizes that we would like, whatever they take), or a number, which is that
part of the full sizes: `LSMSTATE_TEST_SIZE=0.05`. `seconds` is the time of one core that one of them was measured to
take, those of Spark by a guess; `python -m tests.support.sizes` prints the table with the minutes that follow.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

ENV = "LSMSTATE_TEST_SIZE"
NAMED = ("default", "full", "endless")


@dataclass(frozen=True, slots=True)
class Size:
    """One number of the table. A size that says `every` is a stride: the smaller, the more is done."""

    what: str
    default: int
    full: int
    endless: int
    seconds: float = 0.0  # of one core, for one of them; 0 where another size counts them
    every: bool = False


SIZES: dict[str, Size] = {
    "crash_images": Size("images of a crashed disk", 100_000, 1_000_000, 5_000_000, 0.0015),
    "crash_go_on_every": Size("images of which one is committed to", 1, 8, 1, every=True),
    "recovery_every": Size("points of which the recovery of one is crashed", 30, 1, 1, every=True),
    "recovery_images": Size("images of a point of a recovery", 4, 8, 32),
    "errno_pairs": Size("pairs of errors of file operations that are tried", 400, 20_000, 100_000, 0.02),
    "state_machine": Size("sequences of calls against the model", 300, 1_000, 20_000, 0.4),
    "state_machine_steps": Size("calls in a sequence", 50, 100, 100),
    "wal_state_machine": Size("sequences with a log against the model", 60, 500, 5_000, 0.2),
    "wal_state_machine_steps": Size("calls in a sequence with a log", 30, 60, 60),
    "wal_images": Size("images of a point with a log", 5, 50, 200),
    "wal_every": Size("operations with a log of which one is crashed or fails", 3, 1, 1, every=True),
    "kills": Size("writers killed with -9", 1_000, 10_000, 50_000, 0.05),
    "wal_kills": Size("writers with a log killed with -9", 100, 2_000, 5_000, 0.05),
    "pipeline_kills": Size("times the 300 pipelines killed with -9", 1, 5, 10, 60.0),
    "catalog_kills": Size("drivers killed in a fight for a job", 3, 100, 200, 1.0),
    "catalog_seeds": Size("lives of a catalog against its model", 4, 100, 200, 0.7),
    "flipped_bits": Size("bits flipped of each byte (1: all of them at once)", 1, 8, 8),
    "verify_every": Size("damages of which `verify` is asked about one", 5, 1, 1, every=True),
    "typed_bytes_every": Size("bytes of a state with every type of which one is flipped", 13, 1, 1, every=True),
    "typed_tools_every": Size("of these of which verify, dump and inspect are asked about one", 7, 1, 1, every=True),
    "marked_bytes_every": Size("bytes of a state with marks of which one is flipped", 397, 4, 1, every=True),
    "hostile_logs": Size("records of a log that lie", 2_000, 50_000, 50_000, 0.0005),
    "hostile_indexes": Size("indexes of SSTables that lie", 1_000, 20_000, 20_000, 0.005),
    "held_every": Size("steps of the other process of which one is held", 8, 1, 1, every=True),
    "held_every_compaction": Size("the same where one of the two compacts", 48, 4, 1, every=True),
    "simulation_seeds": Size("seeds of the simulation of checkpoints", 2_000, 200_000, 1_000_000, 0.0025),
    "joins": Size("random joins against DuckDB", 2_000, 20_000, 200_000, 0.017),
    "spark_cases": Size("random workloads against Spark's join", 20, 60, 400, 5.0),
    "spark_rounds": Size("rounds of eight kills on Spark, every second one on a local cluster", 2, 12, 63, 40.0),
    "soak_seconds": Size("seconds of the soak", 30, 1_800, 7_200, 1.0),
}


def size(name: str) -> int:
    """How much this run does."""
    chosen, told = SIZES[name], os.environ.get(ENV) or "default"
    if told in NAMED:
        return int(getattr(chosen, told))
    part = _part(told)
    if not chosen.seconds:  # a stride, or the size of one of them: a part of the run does fewer
        return chosen.full
    return max(1, min(chosen.full, round(chosen.full * part)))


def is_default() -> bool:
    """Whether this is the run that everybody makes."""
    return (os.environ.get(ENV) or "default") == "default"


def _part(told: str) -> float:
    try:
        part = float(told)
    except ValueError:
        part = 0.0
    if not 0 < part <= 1:
        raise ValueError(f"{ENV} is {' or '.join(NAMED)} or a part of full such as 0.05, not {told!r}")
    return part


def table() -> str:
    """The sizes and the minutes of two cores that each takes, in Markdown."""
    lines = ["| what | default | full | endless | minutes on two cores: full | endless |", "|---|--:|--:|--:|--:|--:|"]
    for chosen in SIZES.values():
        minutes = [f"{number * chosen.seconds / 120:,.1f}" for number in (chosen.full, chosen.endless)]
        told = minutes if chosen.seconds else ["", ""]
        numbers = [f"{number:,}" for number in (chosen.default, chosen.full, chosen.endless)]
        lines.append(f"| {' | '.join([chosen.what, *numbers, *told])} |")
    sums = [sum(getattr(chosen, run) * chosen.seconds for chosen in SIZES.values()) / 120 for run in NAMED[1:]]
    lines.append(f"| all of these | | | | {sums[0]:,.0f} | {sums[1]:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
