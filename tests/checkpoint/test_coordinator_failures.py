"""A checkpoint ends by the clock, by a decline or an abort; failures are retried, some may not be undone."""

from __future__ import annotations

import pytest

from lsmstate import CatalogError, CheckpointError, FencedError, TooManyFailures
from lsmstate.checkpoint.coordinator.coordinator import PhaseTimeouts
from lsmstate.checkpoint.coordinator.phases import Completed, Failed, Idle, InProgress
from tests.support.checkpoint_coordinator import Time, ack, at_step, complete, make

TIMEOUTS = PhaseTimeouts(align_s=1, snapshot_s=2, pre_commit_s=3, persist_s=4, commit_s=5)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.mark.parametrize(
    ("step", "limit_s"), [("align", 1), ("snapshot", 2), ("pre_commit", 3), ("persist", 4), ("commit", 5)]
)
def test_each_step_ends_by_the_clock_though_nobody_reports(time: Time, step: str, limit_s: float) -> None:
    coordinator = make(time, "a", "b", timeouts=TIMEOUTS)
    at_step(coordinator, step)
    time.go(limit_s - 0.01)
    assert coordinator.tick() is None
    time.go(0.01)
    failed = coordinator.tick()
    assert failed == coordinator.phase
    assert failed is not None
    assert f"{step} took longer than {limit_s} s" in failed.reason
    assert coordinator.current_id is None


def test_dead_operator_is_named_when_the_clock_ends_its_checkpoint(time: Time) -> None:
    coordinator = make(time, "dead", "alive", timeouts=TIMEOUTS)
    coordinator.initiate()
    coordinator.acknowledge(ack("alive", 1))
    time.go(1)
    failed = coordinator.tick()
    assert failed is not None
    assert failed.reason == "align took longer than 1 s; no report of 'dead'"


def test_time_of_snapshots_begins_when_all_have_aligned(time: Time) -> None:
    coordinator = make(time, "a", "b", timeouts=TIMEOUTS)
    coordinator.initiate()
    time.go(0.9)
    coordinator.progress("checkpointing_started", "a", 1)
    coordinator.acknowledge(ack("b", 1))  # who has finished has aligned
    phase = coordinator.phase
    assert isinstance(phase, InProgress)
    assert phase.step == "snapshot"
    time.go(1.9)
    assert coordinator.tick() is None


def test_report_after_the_timeout_is_an_error_and_revives_nothing(time: Time) -> None:
    coordinator = make(time, "a", timeouts=TIMEOUTS)
    coordinator.initiate()
    time.go(1)
    coordinator.tick()
    with pytest.raises(CheckpointError, match="late"):
        coordinator.acknowledge(ack("a", 1))
    assert isinstance(coordinator.phase, Failed)


@pytest.mark.parametrize("field", ["align_s", "snapshot_s", "pre_commit_s", "persist_s", "commit_s"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_timeout_that_is_not_above_0_is_refused(field: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=field):
        PhaseTimeouts(**{field: seconds})


def test_decline_fails_the_checkpoint_at_once(time: Time) -> None:
    coordinator = make(time, "a", "b")
    coordinator.initiate()
    failed = coordinator.decline("b", 1, "disk full")
    assert failed == coordinator.phase
    assert failed.reason == "operator 'b' declined: disk full"
    assert not failed.must_recover


@pytest.mark.parametrize(("operator", "number"), [("ghost", 1), ("a", 7)])
def test_decline_that_does_not_fit_is_an_error_and_fails_nothing(time: Time, operator: str, number: int) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    with pytest.raises(CheckpointError):
        coordinator.decline(operator, number, "no")
    assert coordinator.current_id == 1


def test_abort_when_nothing_runs_is_an_error(time: Time) -> None:
    coordinator = make(time, "a")
    with pytest.raises(CheckpointError, match="none is in progress"):
        coordinator.abort("why not")
    complete(coordinator)
    with pytest.raises(CheckpointError, match="none is in progress"):
        coordinator.abort("why not")
    assert isinstance(coordinator.phase, Completed)


def test_checkpoint_without_operators_completes(time: Time) -> None:
    coordinator = make(time)
    assert not coordinator.is_synced
    coordinator.initiate()
    assert coordinator.is_synced
    for step in ("pre_commit", "persist", "commit"):
        coordinator.begin(step)
    assert coordinator.done().epoch == 1


def test_failure_before_the_manifest_may_be_undone_and_is_tried_again(time: Time) -> None:
    for step in ("align", "snapshot", "pre_commit"):
        coordinator = make(time, "a", "b")
        at_step(coordinator, step)
        assert not coordinator.abort("no").must_recover
        assert coordinator.initiate().epoch == 1


@pytest.mark.parametrize(("step", "epoch"), [("persist", 0), ("commit", 1)])
def test_failure_once_the_manifest_may_be_durable_lets_nothing_follow_but_a_recovery(
    time: Time, step: str, epoch: int
) -> None:
    coordinator = make(time, "a", "b")
    at_step(coordinator, step)
    assert coordinator.abort("the disk does not answer").must_recover
    assert coordinator.epoch == epoch
    for go_on in (coordinator.should_checkpoint, coordinator.initiate):
        with pytest.raises(CheckpointError, match="recover the job"):
            go_on()


def test_failures_are_retried_after_a_back_off_that_doubles(time: Time) -> None:
    coordinator = make(time, "a", interval_s=1000, backoff_s=2, failures_max=4, skip_first_tick=False)
    for wait in (2, 4, 8):
        coordinator.initiate()
        coordinator.abort("no")
        assert not coordinator.should_checkpoint()
        time.go(wait - 0.5)
        assert not coordinator.should_checkpoint()
        time.go(0.5)
        assert coordinator.should_checkpoint()
    complete(coordinator)
    assert coordinator.consecutive_failures == 0
    assert not coordinator.should_checkpoint()
    time.go(1000)
    assert coordinator.should_checkpoint()


def test_back_off_has_an_upper_limit(time: Time) -> None:
    coordinator = make(time, "a", interval_s=1, backoff_s=1, failures_max=10_000)
    for _ in range(2000):
        coordinator.initiate()
        coordinator.abort("no")
    time.go(60)
    assert coordinator.should_checkpoint()


def test_too_many_failures_in_a_row_end_it_with_the_last_reason(time: Time) -> None:
    coordinator = make(time, "a", failures_max=2)
    for reason in ("first", "second"):
        coordinator.initiate()
        coordinator.abort(reason)
    assert coordinator.consecutive_failures == 2
    for go_on in (coordinator.should_checkpoint, coordinator.initiate):
        with pytest.raises(TooManyFailures, match=r"2 checkpoints in a row .* second"):
            go_on()


def test_success_forgets_failures(time: Time) -> None:
    coordinator = make(time, "a", failures_max=2)
    for _ in range(5):
        coordinator.initiate()
        coordinator.abort("no")
        complete(coordinator)
    assert coordinator.consecutive_failures == 0


@pytest.mark.parametrize("error", [CatalogError("down", "down"), FencedError("another driver")])
def test_id_that_cannot_be_had_is_a_failure_and_starts_nothing(time: Time, error: Exception) -> None:
    def no_id() -> int:
        raise error

    coordinator = make(time, "a", next_id=no_id, skip_first_tick=False, failures_max=2)
    with pytest.raises(type(error), match=r"down|another driver"):
        coordinator.initiate()
    assert coordinator.phase == Idle()
    assert coordinator.consecutive_failures == 1
    assert not coordinator.should_checkpoint()
