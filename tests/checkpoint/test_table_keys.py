"""Keyed tables whose keys have several forms, or share hashes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsmstate.checkpoint.tables.table_set import KeyedTable, TableSet
from lsmstate.engine import intake
from tests.support.key_values import FLAT, plain_key, random_key


def batch(keys: pa.Array, first: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([keys, pa.array(range(first, first + len(keys)))], names=["k", "v"])


def held(table: KeyedTable) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for rows in table.items():
        for key, value in zip(plain_key(rows.column("k")), rows.column("v").to_pylist(), strict=True):
            assert key not in found
            found[key] = value
    return found


def check(kind: pa.DataType, path: Path) -> None:
    """Puts, deletes and gets, against a dict."""
    rng = random.Random(12)
    expected: dict[Any, int] = {}
    with TableSet(path) as tables:
        table = tables.keyed("t", pa.schema([("k", kind), ("v", pa.int64())]), ["k"])
        for number in range(6):
            keys = random_key(rng, kind, 30, few=number % 2 == 0).drop_null()
            table.put(batch(keys, 100 * number))
            expected.update(zip(plain_key(keys), range(100 * number, 100 * number + len(keys)), strict=True))
            gone = keys.slice(0, 2)
            table.delete(pa.RecordBatch.from_arrays([gone], names=["k"]))
            for key in plain_key(gone):
                expected.pop(key, None)
        for _ in range(2):
            assert held(table) == expected
            found = table.get(pa.RecordBatch.from_arrays([keys], names=["k"]))
            asked = [plain_key(keys)[row] for row in found.index.tolist()]
            assert [expected[key] for key in asked] == found.rows.column("v").to_pylist()
            assert {*asked} == {key for key in plain_key(keys) if key in expected}
            table.fold()


@pytest.mark.parametrize("kind", FLAT, ids=str)
def test_table_holds_one_row_of_each_key(kind: pa.DataType, tmp_path: Path) -> None:
    check(kind, tmp_path)


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(38, 10), pa.binary(), pa.int8()], ids=str)
def test_keys_whose_hashes_collide_are_told_apart(
    kind: pa.DataType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = intake.hash_keys
    monkeypatch.setattr(intake, "hash_keys", lambda columns: real(columns) % np.uint64(3))
    monkeypatch.setattr(intake, "tells_apart", lambda columns, hashes: False)
    check(kind, tmp_path)
