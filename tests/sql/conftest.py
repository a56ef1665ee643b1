"""What the tests of streaming tables share: two tables of rows, unless a file makes tables of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sql_tables import put, rows


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with the tables `impressions` and `clicks` below `in`."""
    put(tmp_path / "in/impressions", rows(1, 400))
    put(tmp_path / "in/clicks", rows(2, 300), files=2)
    return tmp_path
