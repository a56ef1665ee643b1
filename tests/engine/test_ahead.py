"""Work ahead is done once, by whoever comes first, and never waited for in vain."""

from __future__ import annotations

import threading

import pytest

from lsmstate.engine import ahead
from lsmstate.engine.ahead import Ahead


def test_job_is_done_by_the_helper_and_its_result_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_HELPERS", 1)
    begun = threading.Event()
    by: list[str] = []

    def job() -> None:  # None is a result as good as any
        by.append(threading.current_thread().name)
        begun.set()

    work = Ahead(job)
    assert begun.wait(30)
    work.result()
    assert by == ["iopool-ahead"]


def test_job_that_nobody_has_begun_is_done_by_the_one_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_HELPERS", 1)
    held, free = threading.Event(), threading.Event()

    def busy() -> bool:
        held.set()
        return free.wait(30)

    first = Ahead(busy)
    assert held.wait(30)
    assert Ahead(lambda: threading.current_thread() is threading.main_thread()).result()
    free.set()
    assert first.result()


def test_without_a_helper_the_job_is_done_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_HELPERS", 0)
    done: list[int] = []
    work = Ahead(lambda: done.append(1))
    assert done == []
    work.result()
    assert done == [1]


@pytest.mark.parametrize("helpers", [0, 1])
def test_what_a_job_raises_reaches_the_one_who_needs_it(monkeypatch: pytest.MonkeyPatch, helpers: int) -> None:
    monkeypatch.setattr(ahead, "_HELPERS", helpers)

    def job() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Ahead(job).result()
