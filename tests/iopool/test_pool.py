"""The worker pool: jobs end or say why not, whatever their neighbours do, and closing is bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from iopool import Lane, LaneMetrics, PoolBusy, PoolClosed, WorkerPool

PATIENCE = 30.0  # seconds before a test gives up; nothing here should come near


class Gate:
    """A job that says when it has begun and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.opened.wait(PATIENCE)
        return "through"


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(queue_depth=2)
    yield pool
    assert pool.close(PATIENCE)


def occupy(pool: WorkerPool, lane: Lane, gate: Gate) -> None:
    """Leaves the lane's only worker busy with the gate."""
    pool.submit(lane, gate)
    assert gate.begun.wait(PATIENCE)


def fail(error: BaseException) -> Callable[[], None]:
    def job() -> None:
        raise error

    return job


def test_result_is_what_the_job_returns(pool: WorkerPool) -> None:
    ticket = pool.submit("spill", lambda: 7)
    assert ticket.result(PATIENCE) == 7
    assert ticket.done()
    assert ticket.result(0) == 7


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_job_that_raises_harms_only_its_own_ticket(pool: WorkerPool, error: BaseException) -> None:
    failed = pool.submit("spill", fail(error))
    good = pool.submit("spill", lambda: "fine")
    with pytest.raises(type(error)) as caught:
        failed.result(PATIENCE)
    assert caught.value is error
    assert good.result(PATIENCE) == "fine"


def test_error_that_cannot_be_described_harms_nobody(pool: WorkerPool) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    with pytest.raises(Mute):
        pool.submit("spill", fail(Mute())).result(PATIENCE)
    assert pool.metrics()["spill"].last_error == "Mute"
    assert pool.submit("spill", lambda: 1).result(PATIENCE) == 1


def test_jobs_of_one_worker_run_in_order() -> None:
    pool = WorkerPool()
    seen: list[int] = []
    for number in range(200):
        pool.submit("spill", lambda number=number: seen.append(number))  # type: ignore[misc]
    assert pool.close(PATIENCE)
    assert seen == list(range(200))


def test_busy_compaction_does_not_delay_spills(pool: WorkerPool, gate: Gate) -> None:
    occupy(pool, "compaction", gate)
    pool.submit("compaction", int)
    pool.submit("compaction", int)
    assert [pool.submit("spill", lambda: 5).result(PATIENCE) for _ in range(10)] == [5] * 10
    assert pool.metrics()["compaction"].queued == 2


def test_submit_to_full_lane_raises_pool_busy(pool: WorkerPool, gate: Gate) -> None:
    occupy(pool, "spill", gate)
    waiting = [pool.submit("spill", int, timeout=0) for _ in range(2)]
    with pytest.raises(PoolBusy, match="2 spill jobs"):
        pool.submit("spill", int, timeout=0)
    assert issubclass(PoolBusy, TimeoutError)
    gate.opened.set()
    assert [ticket.result(PATIENCE) for ticket in waiting] == [0, 0]


def test_submitters_wait_for_room(pool: WorkerPool, gate: Gate) -> None:
    occupy(pool, "spill", gate)
    depths: list[int] = []

    def submit_many() -> None:
        for _ in range(50):
            pool.submit("spill", lambda: depths.append(pool.metrics()["spill"].queued))

    submitters = [threading.Thread(target=submit_many) for _ in range(3)]
    for submitter in submitters:
        submitter.start()
    gate.opened.set()
    for submitter in submitters:
        submitter.join(PATIENCE)
    assert pool.close(PATIENCE)
    assert len(depths) == 150
    assert max(depths) <= 2


def test_result_timeout_leaves_the_job_going_on(pool: WorkerPool, gate: Gate) -> None:
    ticket = pool.submit("spill", gate)
    with pytest.raises(TimeoutError, match="goes on"):
        ticket.result(timeout=0)
    assert not ticket.done()
    gate.opened.set()
    assert ticket.result(PATIENCE) == "through"


def test_job_that_waits_for_its_own_lane_is_refused(pool: WorkerPool) -> None:
    def waits() -> None:
        pool.submit("spill", int).result()

    def fills() -> None:
        for _ in range(3):
            pool.submit("spill", int)

    for job in (waits, fills, pool.close):
        with pytest.raises(RuntimeError, match="own lane"):
            pool.submit("spill", job).result(PATIENCE)


def test_job_may_wait_for_the_other_lane(pool: WorkerPool) -> None:
    ticket = pool.submit("compaction", lambda: pool.submit("spill", lambda: 3).result(PATIENCE))
    assert ticket.result(PATIENCE) == 3


def test_close_finishes_queued_jobs_then_refuses_new_ones(pool: WorkerPool, gate: Gate) -> None:
    occupy(pool, "spill", gate)
    queued = [pool.submit("spill", lambda: 1) for _ in range(2)]
    gate.opened.set()
    assert pool.close(PATIENCE)
    assert pool.close(0)
    assert [ticket.result(0) for ticket in queued] == [1, 1]
    with pytest.raises(PoolClosed, match="open a new one"):
        pool.submit("spill", int)


def test_close_of_an_unstarted_pool_is_done_at_once() -> None:
    assert WorkerPool().close(0)


def test_close_gives_up_on_a_stuck_job_and_fails_the_queued_ones(pool: WorkerPool, gate: Gate) -> None:
    stuck = pool.submit("spill", gate)
    assert gate.begun.wait(PATIENCE)
    never = pool.submit("spill", lambda: pytest.fail("ran after close"))
    assert pool.close(0) is False
    with pytest.raises(PoolClosed, match="never ran"):
        never.result(PATIENCE)
    gate.opened.set()
    assert stuck.result(PATIENCE) == "through"
    assert pool.close(PATIENCE)


def test_close_frees_a_submitter_that_waits_for_room(pool: WorkerPool, gate: Gate) -> None:
    occupy(pool, "spill", gate)
    errors: list[BaseException] = []
    begun = threading.Event()

    def submit_until_refused() -> None:
        begun.set()
        try:
            while True:
                pool.submit("spill", int)
        except PoolClosed as error:
            errors.append(error)

    submitter = threading.Thread(target=submit_until_refused)
    submitter.start()
    assert begun.wait(PATIENCE)
    assert pool.close(0) is False
    submitter.join(PATIENCE)
    assert len(errors) == 1


def test_metrics_count_each_lane(pool: WorkerPool, gate: Gate) -> None:
    assert pool.metrics() == {"spill": LaneMetrics(), "compaction": LaneMetrics()}
    occupy(pool, "spill", gate)
    queued = pool.submit("spill", fail(OSError("disk on fire")))
    now = pool.metrics()["spill"]
    assert (now.queued, now.running, now.finished, now.failed) == (1, 1, 0, 0)
    gate.opened.set()
    with pytest.raises(OSError, match="disk on fire"):
        queued.result(PATIENCE)
    now = pool.metrics()["spill"]
    assert (now.queued, now.running, now.finished, now.failed) == (0, 0, 1, 1)
    assert now.last_error == "OSError: disk on fire"
    assert now.busy_seconds >= now.longest_seconds > 0
    assert pool.metrics()["compaction"] == LaneMetrics()


@pytest.mark.parametrize("wrong", [{"spill_workers": 0}, {"compaction_workers": -1}, {"queue_depth": 0}])
def test_pool_that_could_never_run_a_job_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        WorkerPool(**wrong)


def test_unknown_lane_is_refused(pool: WorkerPool) -> None:
    with pytest.raises(ValueError, match="spill, compaction"):
        pool.submit("upload", int)  # type: ignore[arg-type]
