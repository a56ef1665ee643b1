"""Joins by keys of every type that a state can hold flat, in random lives, against Python's comparison of the keys."""

from __future__ import annotations

import random
import secrets
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.key_join import as_stored, by_join, by_python, key_case
from tests.support.key_values import FLAT

HOWS = ("inner", "left", "full")


def compare(kinds: list[pa.DataType], how: str, seed: int, path: Path) -> None:
    rng = random.Random(seed)
    case = key_case(rng, kinds, how)
    table, got = by_join(case, rng, path)
    assert got == by_python(case), f"seed {seed}"
    for side, column in ((0, "n"), (1, "n_right")):
        mine = table.filter(table[column].is_valid())
        rows = case.sides[side].take(mine[column].combine_chunks())
        for number in range(case.keys):
            name = f"{'lr'[side]}{number}"
            assert as_stored(mine[name]) == as_stored(rows.column(name)), "a row has another key than it came with"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", FLAT, ids=str)
def test_join_by_one_key_meets_what_python_says_is_equal(kind: pa.DataType, how: str, tmp_path: Path) -> None:
    compare([kind], how, secrets.randbits(32), tmp_path)


@pytest.mark.parametrize("how", HOWS)
def test_join_by_several_keys_meets_what_python_says_is_equal(how: str, tmp_path: Path) -> None:
    for number in range(10):
        rng = random.Random(secrets.randbits(32))
        compare(rng.sample(FLAT, 2), how, rng.getrandbits(32), tmp_path / str(number))
