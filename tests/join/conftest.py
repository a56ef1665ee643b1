"""What the tests of joins share: operators that are closed when a test ends, and the state of a join."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsmstate.checkpoint import OperatorContext
from lsmstate.join.operator import JoinOperator
from tests.support.join_home import JoinHome
from tests.support.join_operator import Started, interval
from tests.support.lines import LAST


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


@pytest.fixture
def join(tmp_path: Path) -> JoinHome:
    """The state of a join, of which three epochs can be read."""
    return JoinHome(tmp_path / "home").epochs(LAST)
