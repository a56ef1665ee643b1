"""Every kind and type of join, in random lives, against a batch join by DuckDB of the rows that were not late."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Figures
from tests.support.join_cases import Case, by_duckdb, live, random_case
from tests.support.sizes import size

CASES = size("joins")
CHUNKS = 20
FOUND: list[int] = []  # seeds that have failed once


def check(seed: int, path: Path, connection: Any) -> None:
    """Runs the case of a seed."""
    case = random_case(seed)
    got, expected = live(case, path / str(seed)), by_duckdb(connection, case)
    assert got == expected, told(case, got, expected)


def told(case: Case, got: Counter[Any], expected: Counter[Any]) -> str:
    kind = case.make().shape.kind
    return f"seed {case.seed}, {kind}: missing {dict(expected - got)}, too much {dict(got - expected)}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_lives_give_the_batch_join(
    chunk: int, tmp_path: Path, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chunk % 2:  # marks are folded, and cut, as they otherwise are only in large states
        monkeypatch.setattr("lsmstate.join.marks._FOLD_AT", 2)
        monkeypatch.setattr("lsmstate.join.marks._IDS_MAX", 3)
    first = random.SystemRandom().randrange(1 << 48)
    print(f"seeds from {first} on")
    with duckdb.connect(config={"threads": 1}) as connection:
        for seed in range(first, first + CASES // CHUNKS):
            check(seed, tmp_path, connection)
    figures.add("random joins equal to DuckDB's", CASES // CHUNKS)


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_have_failed(seed: int, tmp_path: Path) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        check(seed, tmp_path, connection)
