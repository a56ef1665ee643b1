"""Runs the tests of a module three times: with the compiled loops, by two threads, and with the loops of numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lsmstate.engine import probe
from lsmstate.hashing import numbers, texts
from lsmstate.native import kernel
from lsmstate.sstable import filters, gather, order, search

USERS = (filters, gather, order, search, probe, numbers, texts)


@contextmanager
def only_numpy() -> Iterator[None]:
    """As on a machine without a compiler."""
    with pytest.MonkeyPatch.context() as patch:
        for module in USERS:
            patch.setattr(module, "kernel", None)
        yield


@pytest.fixture(scope="module", params=["compiled", "by two threads", "numpy"], autouse=True)
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    """Import it in a module to have all its tests run with both."""
    if request.param == "numpy":
        with only_numpy():
            yield request.param
        return
    assert kernel is not None, "lsmstate was installed without a compiler; install gcc and install it again"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "by two threads":
            patch.setattr(probe, "_MANY", 1)
        yield request.param
