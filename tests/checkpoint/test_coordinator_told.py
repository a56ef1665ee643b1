"""What a coordinator keeps of complete checkpoints, tells by barriers and events, and when it lets a job stop."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lsmstate import CheckpointError
from lsmstate.checkpoint.coordinator.events import Event
from lsmstate.checkpoint.coordinator.phases import Retained
from tests.support.checkpoint_coordinator import Time, ack, complete, make


@pytest.fixture
def time() -> Time:
    return Time()


def test_ten_are_retained_unless_told(time: Time) -> None:
    many, few = make(time, "a"), make(time, "a", retain=2)
    for coordinator in (many, few):
        for _ in range(12):
            complete(coordinator)
    assert [each.id for each in many.retained] == list(range(3, 13))
    assert [each.id for each in few.retained] == [11, 12]
    assert few.latest == few.by_id(12) == Retained(12, 12, 1_000_000, 5, {"a": {"at": "12"}})
    assert few.by_id(10) is None


@pytest.mark.parametrize("retain", [0, -1])
def test_retaining_nothing_is_refused(time: Time, retain: int) -> None:
    with pytest.raises(ValueError, match="retain must be at least 1"):
        make(time, retain=retain)


@pytest.mark.parametrize(
    "options", [{"interval_s": 0}, {"backoff_s": -1}, {"failures_max": 0}, {"epoch": -1}, {"interval_s": float("nan")}]
)
def test_options_out_of_range_are_refused(time: Time, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        make(time, **options)


def test_positions_are_those_of_the_latest_complete_checkpoint(time: Time) -> None:
    coordinator = make(time, "source", "join")
    assert coordinator.positions == {}
    for number in (1, 2):
        coordinator.initiate()
        coordinator.acknowledge(ack("source", number, offsets={"p0": str(number)}))
        if number == 1:
            coordinator.acknowledge(ack("join", number))
            coordinator.done()
    assert coordinator.positions == {"source": {"p0": "1"}}
    coordinator.abort("no")
    assert coordinator.positions == {"source": {"p0": "1"}}


def test_current_id_pending_and_phase_tell_what_is_under_way(time: Time) -> None:
    coordinator = make(time, "b", "a")
    assert (coordinator.current_id, coordinator.pending, coordinator.is_synced) == (None, (), False)
    coordinator.initiate()
    assert (coordinator.current_id, coordinator.pending) == (1, ("a", "b"))
    coordinator.acknowledge(ack("a", 1))
    assert coordinator.pending == ("b",)


def test_min_epoch_lets_go_only_of_what_is_no_longer_retained(time: Time) -> None:
    coordinator = make(time, "a", retain=3)
    seen = []
    for _ in range(6):
        barrier = coordinator.initiate()
        seen.append(barrier.min_epoch)
        coordinator.acknowledge(ack("a", barrier.checkpoint_id))
        coordinator.done()
    assert seen == [1, 1, 1, 1, 2, 3]


def test_min_epoch_does_not_rise_with_attempts_that_fail(time: Time) -> None:
    coordinator = make(time, "a", retain=1, failures_max=10)
    complete(coordinator)
    complete(coordinator)
    for _ in range(3):
        assert coordinator.initiate().min_epoch == 2
        coordinator.abort("no")


def test_restart_that_knows_of_no_retained_ones_lets_go_of_nothing(time: Time) -> None:
    coordinator = make(time, "a", epoch=40, retain=2)
    assert coordinator.initiate().min_epoch == 1


def test_restart_goes_on_from_what_was_retained(time: Time) -> None:
    before = [Retained(n + 100, n, 0, 0, {"a": {"at": str(n)}}) for n in (3, 4, 5)]
    coordinator = make(time, "a", epoch=5, retain=2, retained=before, next_id=iter([200]).__next__)
    assert coordinator.positions == {"a": {"at": "5"}}
    assert coordinator.latest == before[-1]
    barrier = coordinator.initiate()
    assert (barrier.epoch, barrier.min_epoch) == (6, 4)


@pytest.mark.parametrize("epochs", [(3, 2), (2, 2), (5, 6)])
def test_retained_epochs_that_do_not_rise_or_are_ahead_are_refused(time: Time, epochs: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must rise, up to 5"):
        make(time, epoch=5, retained=[Retained(1, each, 0, 0) for each in epochs])


def test_barrier_carries_epoch_id_time_and_then_stop(time: Time) -> None:
    barrier = make(time, "a", epoch=4).initiate(then_stop=True)
    assert (barrier.epoch, barrier.checkpoint_id, barrier.timestamp, barrier.then_stop) == (5, 1, 1_000_000, True)


def test_job_stops_only_once_the_checkpoint_is_complete_and_committed(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate(then_stop=True)
    coordinator.acknowledge(ack("a", 1))
    for step in ("pre_commit", "persist", "commit"):
        coordinator.begin(step)
        assert not coordinator.has_stopped
    coordinator.done()
    assert coordinator.has_stopped
    time.go(1000)
    assert not coordinator.should_checkpoint()
    with pytest.raises(CheckpointError, match="stops with epoch 1"):
        coordinator.initiate()


def test_wish_to_stop_outlives_an_attempt_that_fails(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate(then_stop=True)
    coordinator.abort("no")
    assert not coordinator.has_stopped
    assert coordinator.initiate().then_stop


def test_events_tell_of_every_stage_with_its_time(time: Time) -> None:
    told: list[Event] = []
    coordinator = make(time, "a", on_event=told.append)
    coordinator.initiate()
    time.go(1)
    coordinator.progress("alignment_started", "a", 1)
    coordinator.progress("checkpointing_started", "a", 1, at_ms=77)
    time.go(1)
    coordinator.acknowledge(ack("a", 1))
    for step in ("pre_commit", "persist", "commit"):
        time.go(1)
        coordinator.begin(step)
    coordinator.done()
    assert [(each.kind, each.operator, each.at_ms) for each in told] == [
        ("initiated", None, 1_000_000),
        ("alignment_started", "a", 1_001_000),
        ("checkpointing_started", "a", 77),
        ("operator_finished", "a", 1_002_000),
        ("sync_finished", None, 1_002_000),
        ("pre_commit_started", None, 1_003_000),
        ("persist_started", None, 1_004_000),
        ("commit_started", None, 1_005_000),
        ("commit_finished", None, 1_005_000),
    ]
    assert {(each.checkpoint_id, each.epoch) for each in told} == {(1, 1)}


def test_failure_is_told_with_its_reason(time: Time) -> None:
    told: list[Event] = []
    coordinator = make(time, "a", on_event=told.append)
    coordinator.initiate()
    coordinator.decline("a", 1, "disk full")
    assert (told[-1].kind, told[-1].detail) == ("failed", "operator 'a' declined: disk full")


def test_progress_that_does_not_fit_is_refused(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    with pytest.raises(ValueError, match="has started"):
        coordinator.progress("commit_finished", "a", 1)
    with pytest.raises(CheckpointError, match="reports on checkpoint 9"):
        coordinator.progress("alignment_started", "a", 9)


def test_listener_that_raises_is_logged_and_changes_nothing(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("listener")

    coordinator = make(time, "a", on_event=broken)
    with caplog.at_level(logging.ERROR):
        assert complete(coordinator).epoch == 1
    assert "a listener failed on 'initiated' of checkpoint 1" in caplog.text
