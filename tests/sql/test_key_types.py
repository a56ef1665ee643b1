"""Streaming tables that are joined by keys of other types than numbers and texts give what DuckDB gives."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sql.test_results import WITHIN, ran
from tests.support.sql_tables import by_duckdb, put, rows

KEYS: dict[pa.DataType, list[Any]] = {
    pa.decimal128(20, 2): [Decimal("1.50"), Decimal(-1), None, Decimal(0)],
    pa.float64(): [1.5, float("nan"), None, 0.0],
    pa.date32(): [datetime.date(2024, 2, 29), datetime.date(1969, 1, 1), None, datetime.date(2000, 1, 1)],
    pa.bool_(): [True, False, None, False],
    pa.int16(): [1, -1, None, 0],
}


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_join_by_a_key_of_another_type_gives_what_duckdb_gives(kind: pa.DataType, tmp_path: Path) -> None:
    for name, seed in (("impressions", 1), ("clicks", 2)):
        table = rows(seed, 80)
        keys = pa.array([KEYS[kind][row * seed % 4] for row in range(80)], kind)
        put(tmp_path / f"in/{name}", table.set_column(0, "ad_id", keys), files=2)
    select = f"SELECT i.ad_id, i.n, c.n AS m FROM impressions i LEFT JOIN clicks c ON i.ad_id = c.ad_id AND {WITHIN}"
    expected = by_duckdb(tmp_path, select)
    assert len(expected) > 80
    assert ran(tmp_path, select) == expected
