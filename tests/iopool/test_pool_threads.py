"""The threads of the worker pool: started late, replaced when they die, gone when the pool is."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from iopool import JobLost, WorkerPool
from iopool.lane import JobLane, _Worker

PATIENCE = 30.0  # seconds before a test gives up; nothing here should come near


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(queue_depth=2)
    yield pool
    assert pool.close(PATIENCE)
    assert not workers()


def workers() -> list[threading.Thread]:
    """Those of pools: the one that works ahead belongs to the process (engine/ahead.py)."""
    return [t for t in threading.enumerate() if t.name.startswith("iopool-") and t.name != "iopool-ahead"]


def test_no_thread_starts_before_the_first_job(pool: WorkerPool) -> None:
    assert not workers()
    pool.submit("spill", int).result(PATIENCE)
    assert [thread.name for thread in workers()] == ["iopool-spill"]
    assert all(thread.daemon for thread in workers())


def test_workers_of_one_lane_run_side_by_side() -> None:
    pool = WorkerPool(spill_workers=2)
    meeting = threading.Barrier(2)
    tickets = [pool.submit("spill", lambda: meeting.wait(PATIENCE)) for _ in range(2)]
    assert sorted(ticket.result(PATIENCE) for ticket in tickets) == [0, 1]
    assert pool.close(PATIENCE)
    assert not workers()


def test_dropped_pool_finishes_its_jobs_and_leaves_no_thread() -> None:
    pool = WorkerPool(spill_workers=2)
    threads = [pool.submit("spill", threading.current_thread).result(PATIENCE)]
    last = pool.submit("spill", lambda: "done")
    threads += workers()
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    assert last.result(PATIENCE) == "done"
    for thread in threads:
        thread.join(PATIENCE)
    assert not workers()


def test_ended_ticket_keeps_neither_job_nor_error_cycle_alive(pool: WorkerPool) -> None:
    class Payload:
        def __call__(self) -> None:
            raise ValueError("used up")

    payload = Payload()
    dead = weakref.ref(payload)
    ticket = pool.submit("spill", payload)
    gc.disable()
    try:
        with contextlib.suppress(ValueError):  # pytest.raises would keep the error
            ticket.result(PATIENCE)
        del payload, ticket
        pool.submit("spill", int).result(PATIENCE)  # the worker has let go of the job before
        assert dead() is None
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_worker_that_dies_is_replaced_and_queued_jobs_run(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    take = JobLane._take
    dead: list[threading.Thread] = []

    def die_first(lane: JobLane, worker: _Worker) -> bool:
        if not dead:
            dead.append(worker)
            raise SystemExit
        return take(lane, worker)

    monkeypatch.setattr(JobLane, "_take", die_first)
    tickets = [pool.submit("spill", threading.current_thread) for _ in range(3)]
    ran = {ticket.result(PATIENCE) for ticket in tickets}
    assert len(dead) == len(ran) == 1
    assert ran.isdisjoint(dead)
    dead[0].join(PATIENCE)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_ticket_of_a_worker_that_dies_in_the_middle_says_lost(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead: list[threading.Thread] = []

    def die(*_: object) -> None:
        dead.append(threading.current_thread())
        raise SystemExit

    monkeypatch.setattr(JobLane, "_count", die)
    lost = pool.submit("spill", int)
    with pytest.raises(JobLost, match="unknown"):
        lost.result(PATIENCE)
    monkeypatch.undo()
    dead[0].join(PATIENCE)
    assert pool.submit("spill", lambda: "next").result(PATIENCE) == "next"


def test_submit_without_threads_to_be_had_accepts_nothing(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        pool.submit("spill", int)
    assert pool.metrics()["spill"].queued == 0
    monkeypatch.undo()
    assert pool.submit("spill", int).result(PATIENCE) == 0


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_worker_survives_what_its_job_raises(pool: WorkerPool, error: type[BaseException]) -> None:
    def job() -> None:
        raise error

    before = pool.submit("spill", threading.current_thread).result(PATIENCE)
    with pytest.raises(error):
        pool.submit("spill", job).result(PATIENCE)
    assert pool.submit("spill", threading.current_thread).result(PATIENCE) is before
