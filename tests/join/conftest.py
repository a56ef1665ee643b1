"""Operators that are closed when a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsmstate.checkpoint import OperatorContext
from lsmstate.join.operator import JoinOperator
from tests.support.join_operator import Started, interval


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made: list[JoinOperator] = []

    def start(join: JoinOperator | None = None, **context: Any) -> JoinOperator:
        operator = join or interval()
        operator.on_start(OperatorContext(tmp_path / "state", **context))
        made.append(operator)
        return operator

    yield start
    for operator in made:
        operator.on_close()
