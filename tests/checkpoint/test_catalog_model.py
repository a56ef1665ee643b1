"""Random calls by several drivers: after each one the catalog says what a few dictionaries say."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from lsmstate import LsmStateError
from lsmstate.checkpoint.catalog import Catalog, CheckpointRow
from tests.support.catalog_model import ModelCatalog
from tests.support.sizes import size

NAMES = ("a", "b'\x00")
STEPS = 60
SEEDS = size("catalog_seeds")


def outcome(call: Callable[..., Any], *args: Any, **named: Any) -> str | None:
    """The name of the error that a call raises; None if it raises none."""
    try:
        call(*args, **named)
    except (LsmStateError, ValueError) as error:
        return type(error).__name__
    return None


def require_same(catalog: Catalog, model: ModelCatalog) -> None:
    jobs = {job.name: job for job in catalog.jobs()}
    assert set(jobs) == set(model.jobs)
    for name, expected in model.jobs.items():
        job = jobs[name]
        assert (job.latest_checkpoint_epoch, job.latest_checkpoint_id) == (expected.epoch, expected.at)
        assert (job.line, job.incarnation) == (expected.line, model.incarnations[name])
        assert job.source_checkpoints == (expected.offsets[expected.at] if expected.at else {})
        assert {row.checkpoint_id: row for row in catalog.checkpoints(name)} == expected.rows
        assert all(catalog.source_checkpoints(name, number) == told for number, told in expected.offsets.items())
        assert catalog.job(name) == job


@pytest.mark.parametrize("seed", range(SEEDS))
def test_catalog_says_what_the_model_says_after_every_call(catalog_url: str, seed: int) -> None:
    draw = random.Random(seed)
    model = ModelCatalog()
    catalogs = [Catalog.open(catalog_url) for _ in range(2)]  # two drivers
    committed: list[tuple[str, CheckpointRow, dict[str, dict[str, str]]]] = []
    for step in range(10 * STEPS):
        if step >= STEPS and committed:
            break
        catalog, name = draw.choice(catalogs), draw.choice(NAMES)
        current = model.incarnations.get(name, 0)
        mine = current if draw.random() < 0.9 else draw.randrange(current + 2)
        job = model.jobs.get(name)
        epoch, line, last = (job.epoch, job.line, model.ids[name]) if job else (0, 1, 0)
        action = draw.choices(
            ("register", "drop", "take", "id", "commit", "repeat", "rewind", "forget"), (6, 1, 2, 6, 12, 3, 3, 2)
        )[0]
        if action == "register":
            got = outcome(catalog.register, name, kind="sql", definition={"seed": seed})
            expected = model.register(name)
        elif action == "drop":
            got, expected = outcome(catalog.drop, name), model.drop(name)
        elif action == "take":
            got, expected = outcome(catalog.take, name), model.take(name)
        elif action == "id":
            got = outcome(catalog.next_checkpoint_id, name, mine)
            expected = model.next_checkpoint_id(name, mine)
        elif action in ("commit", "repeat"):
            number, cut = last - draw.choice((0, 0, 0, 1, -1)), epoch + draw.choice((1, 1, 2, 0))
            row = CheckpointRow(max(1, number), max(1, cut), line)
            offsets = {source: {"at": str(step)} for source in draw.sample(("l", "r\x00", "s"), draw.randrange(3))}
            if action == "repeat" and committed:
                name, row, offsets = draw.choice(committed)
            got = outcome(catalog.commit_job_checkpoint, name, mine, row, offsets)
            expected = model.commit(name, mine, row, offsets)
            committed += [(name, row, offsets)] if expected is None else []
        elif action == "rewind":
            back, to = max(0, epoch - draw.randrange(3)), line + draw.choice((0, 1, 1))
            got = outcome(catalog.rewind, name, mine, back, to)
            expected = model.rewind(name, mine, back, to)
        else:
            ids = draw.sample(range(1, last + 3), min(2, last + 1))
            got = outcome(catalog.forget, name, mine, ids)
            expected = model.forget(name, mine, ids)
        assert got == expected, f"seed {seed}, step {step}: {action} of {name!r}"
        require_same(draw.choice(catalogs), model)
    assert committed, f"seed {seed}: nothing was tried that should work"
    for catalog in catalogs:
        catalog.close()
