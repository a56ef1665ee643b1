"""Whole jobs in simulated time: whatever is lost, late, doubled, killed or paused, every row is committed exactly once.

Each run goes through `SEEDS` worlds (tests/support/sizes.py). To see one again: `World(seed).run()`,
and read its `trace`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lsmstate.checkpoint.catalog import Catalog
from tests.conftest import Figures
from tests.support.sim_checkpoint import Broken, Design, World
from tests.support.sim_checkpoint_bugs import BUGS
from tests.support.sim_checkpoint_stores import JOB
from tests.support.sizes import size

SEEDS = size("simulation_seeds")
PARTS = 8
SEEDS_OF_BUGS = 2_000
SAME_SEEDS = range(7_000, 7_040)
REAL_SEEDS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_every_row_is_committed_once_whatever_goes_wrong(part: int, figures: Figures) -> None:
    seen = Counter[str]()
    for seed in range(part, SEEDS, PARTS):
        world = World(seed).run()
        seen.update(world.seen)
        figures.add("checkpoint simulation: {} seeds, {} faults", 1, world.faults.total())
        figures.add("checkpoint simulation: {} epochs, {} failed", world.catalog.epoch, failures(world.seen))
    for outcome in ("rolled forward", "orphan removed", "driver ended: fenced", "driver ended: killed"):
        assert seen[outcome], f"no world had: {outcome}"
    for step in ("align", "snapshot", "pre_commit", "persist", "commit"):
        assert seen[f"failed at {step}"], f"no checkpoint failed at {step}"


def failures(seen: Counter[str]) -> int:
    return sum(count for what, count in seen.items() if what.startswith("failed at "))


def test_same_seed_gives_the_same_trace_and_others_another() -> None:
    digests = [World(seed).run().digest() for seed in SAME_SEEDS]
    assert digests == [World(seed).run().digest() for seed in SAME_SEEDS]
    assert len(set(digests)) == len(digests)


def test_same_seed_gives_the_same_trace_in_another_process() -> None:
    code = "from tests.support.sim_checkpoint import World\nfor n in range(8): print(World(n).run().digest())"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0].split() == [World(n).run().digest() for n in range(8)]


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_caught(bug: str, figures: Figures) -> None:
    figures.add("planted bugs of checkpoints caught: {} of {}", 0, 1)
    caught = next((seed for seed in range(SEEDS_OF_BUGS) if is_broken(seed, BUGS[bug])), None)
    assert caught is not None, f"not caught by {SEEDS_OF_BUGS} seeds"
    assert not is_broken(caught, Design())
    figures.add("planted bugs of checkpoints caught: {} of {}", 1, 0)


def is_broken(seed: int, design: Design) -> bool:
    try:
        World(seed, design).run()
    except Broken as broken:
        print(broken)
        return True
    return False


@pytest.mark.parametrize("seed", range(REAL_SEEDS))
def test_real_catalog_leads_to_the_same_trace_as_its_model(seed: int, tmp_path: Path) -> None:
    with Catalog.open(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.register(JOB, kind="pipeline", definition={})
        world = World(seed, Design(catalog=lambda: catalog)).run()
        assert world.digest() == World(seed).run().digest()
        assert [row.epoch for row in catalog.checkpoints(JOB)] == list(range(1, world.catalog.epoch + 1))
        assert catalog.source_checkpoints(JOB) == {
            name: {"at": str(at)} for name, at in world.catalog.offsets[world.catalog.epoch].items()
        }
