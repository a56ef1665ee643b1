"""Joins by lists and structs: NULLs inside are equal, a NULL key equals nothing."""

from __future__ import annotations

import secrets
from pathlib import Path

import pyarrow as pa
import pytest

from tests.checkpoint.test_table_keys import check
from tests.join.test_keys_of_any_type import HOWS, compare
from tests.support.key_values import NESTED


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", NESTED, ids=str)
def test_join_by_a_nested_key_meets_what_python_says_is_equal(kind: pa.DataType, how: str, tmp_path: Path) -> None:
    compare([kind], how, secrets.randbits(32), tmp_path)


def test_join_by_a_nested_and_a_flat_key_meets_what_python_says_is_equal(tmp_path: Path) -> None:
    for number, kind in enumerate(NESTED):
        compare([pa.int32(), kind], "full", secrets.randbits(32), tmp_path / str(number))


@pytest.mark.parametrize("kind", NESTED, ids=str)
def test_table_by_a_nested_key_holds_one_row_of_each(kind: pa.DataType, tmp_path: Path) -> None:
    check(kind, tmp_path)
