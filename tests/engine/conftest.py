"""What the tests of the engine share: a disk with a state that retires rows, unless a file makes one of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.states import World, sides


@pytest.fixture
def world() -> Iterator[World]:
    with World(sides(2, retention=1000)) as world:
        yield world
