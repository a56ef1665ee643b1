"""One checkpoint at a time, complete only when all who were registered have reported."""

from __future__ import annotations

import pytest

from lsmstate import CheckpointError
from lsmstate.checkpoint.coordinator.coordinator import PhaseTimeouts
from lsmstate.checkpoint.coordinator.phases import Completed, Failed, Idle, InProgress
from tests.support.checkpoint_coordinator import Time, ack, complete, make


@pytest.fixture
def time() -> Time:
    return Time()


def test_phases_go_from_idle_over_progress_to_completed_and_back_to_idle(time: Time) -> None:
    coordinator = make(time, "a", "b")
    assert coordinator.phase == Idle()
    barrier = coordinator.initiate()
    assert coordinator.phase == InProgress(1, 1, "align", started_ms=1_000_000)
    assert not coordinator.acknowledge(ack("a", barrier.checkpoint_id, size_bytes=3))
    assert coordinator.phase == InProgress(1, 1, "align", started_ms=1_000_000, acked=frozenset({"a"}))
    assert coordinator.acknowledge(ack("b", barrier.checkpoint_id, size_bytes=4))
    time.go(2)
    assert coordinator.done() == coordinator.phase == Completed(1, 1, at_ms=1_002_000, size_bytes=7)
    assert coordinator.tick() is None
    assert coordinator.phase == Idle()


def test_phases_go_from_progress_to_failed_and_back_to_idle(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    failed = coordinator.abort("enough")
    assert failed == coordinator.phase == Failed(1, 1, "enough", "align", at_ms=1_000_000)
    coordinator.tick()
    assert coordinator.phase == Idle()


def test_ids_start_at_1_and_rise_with_every_attempt_while_a_failed_epoch_is_tried_again(time: Time) -> None:
    coordinator = make(time, "a")
    assert complete(coordinator).id == 1
    second = coordinator.initiate()
    coordinator.abort("no")
    third = coordinator.initiate()
    assert [(b.checkpoint_id, b.epoch) for b in (second, third)] == [(2, 2), (3, 2)]


def test_ids_go_on_after_a_restart_where_a_catalog_gives_them(time: Time) -> None:
    ids = iter(range(1, 100))
    before = make(time, "a", next_id=ids.__next__)
    complete(before)
    before.initiate()  # and the driver dies
    after = make(time, "a", next_id=ids.__next__, epoch=before.epoch)
    barrier = after.initiate()
    assert (barrier.checkpoint_id, barrier.epoch) == (3, 2)


@pytest.mark.parametrize("again", [1, 2])
def test_id_that_does_not_rise_is_refused(time: Time, again: int) -> None:
    ids = iter([2, again])
    coordinator = make(time, "a", next_id=ids.__next__)
    coordinator.initiate()
    coordinator.abort("failed")
    with pytest.raises(CheckpointError, match="never repeat"):
        coordinator.initiate()
    assert coordinator.current_id is None


def test_initiate_while_one_is_in_progress_is_an_error_that_changes_nothing(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    before = coordinator.phase
    with pytest.raises(CheckpointError, match="checkpoint 1 is in progress"):
        coordinator.initiate()
    assert coordinator.phase == before


def test_one_that_never_ran_is_due_at_once_unless_the_first_tick_is_skipped(time: Time) -> None:
    assert make(time, "a", interval_s=10, skip_first_tick=False).should_checkpoint()
    coordinator = make(time, "a", interval_s=10)
    assert not coordinator.should_checkpoint()
    time.go(9.9)
    assert not coordinator.should_checkpoint()
    time.go(0.1)
    assert coordinator.should_checkpoint()


def test_next_is_due_when_nothing_runs_and_the_interval_is_over(time: Time) -> None:
    coordinator = make(time, "a", interval_s=10, skip_first_tick=False)
    coordinator.initiate()
    time.go(50)
    assert not coordinator.should_checkpoint()  # one in flight
    coordinator.acknowledge(ack("a", 1))
    coordinator.done()
    assert coordinator.should_checkpoint()
    complete(coordinator)
    assert not coordinator.should_checkpoint()
    time.go(10)
    assert coordinator.should_checkpoint()


def test_clock_on_the_wall_may_jump_without_making_anything_due_or_overdue(time: Time) -> None:
    coordinator = make(time, "a", interval_s=10, skip_first_tick=False)
    coordinator.initiate()
    for jump in (10**9, -2 * 10**9):
        time.wall_ms += jump
        assert coordinator.tick() is None
    coordinator.acknowledge(ack("a", 1))
    coordinator.done()
    assert not coordinator.should_checkpoint()


def test_periodic_loop_skips_the_first_tick_and_has_one_in_flight(time: Time) -> None:
    coordinator = make(time, "a", interval_s=5, timeouts=PhaseTimeouts(align_s=100))
    sent: list[tuple[float, int]] = []
    for _ in range(40):  # the operator takes 7 s to answer, longer than the interval
        coordinator.tick()
        if coordinator.should_checkpoint():
            sent.append((time.now - 100, coordinator.initiate().checkpoint_id))
        elif coordinator.current_id is not None and time.now - 100 - sent[-1][0] >= 7:
            coordinator.acknowledge(ack("a", coordinator.current_id))
            coordinator.done()
        time.go(1)
    assert sent == [(5, 1), (13, 2), (21, 3), (29, 4), (37, 5)]


def test_registering_again_changes_nothing(time: Time) -> None:
    coordinator = make(time, "b", "a", "b")
    assert coordinator.operators == ("b", "a")
    coordinator.initiate()
    assert coordinator.pending == ("a", "b")


def test_snapshot_carries_state_inflight_records_size_offsets_and_positions(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    snapshot = ack("a", 1, state=b"s", inflight={"left": [b"r"]}, size_bytes=9, offsets={"p": "4"}, wal_position=7)
    coordinator.acknowledge(snapshot)
    assert coordinator.snapshots == {"a": snapshot}
    assert coordinator.done().size_bytes == 9
    assert coordinator.snapshots == {}


def test_report_when_nothing_is_in_progress_is_an_error(time: Time) -> None:
    coordinator = make(time, "a")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="none is in progress"):
            coordinator.acknowledge(ack("a", 1))
        coordinator.initiate()
        coordinator.abort("failed")
    assert isinstance(coordinator.phase, Failed)


@pytest.mark.parametrize("other", [1, 3])
def test_report_on_another_checkpoint_is_an_error_and_does_not_count(time: Time, other: int) -> None:
    coordinator = make(time, "a")
    complete(coordinator)
    coordinator.initiate()
    with pytest.raises(CheckpointError, match="but 2 is in progress"):
        coordinator.acknowledge(ack("a", other))
    assert coordinator.pending == ("a",)


def test_report_of_an_unregistered_operator_is_an_error_and_does_not_count(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    with pytest.raises(CheckpointError, match="'ghost' is not registered"):
        coordinator.acknowledge(ack("ghost", 1))
    assert coordinator.pending == ("a",)
    assert coordinator.snapshots == {}


def test_operator_that_comes_during_a_checkpoint_is_waited_for_from_the_next_on(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    coordinator.register("b")
    with pytest.raises(CheckpointError, match="'b' was not registered when checkpoint 1 began"):
        coordinator.acknowledge(ack("b", 1))
    assert coordinator.acknowledge(ack("a", 1))
    coordinator.done()
    coordinator.initiate()
    assert coordinator.pending == ("a", "b")


def test_operator_that_leaves_before_its_report_fails_the_checkpoint(time: Time) -> None:
    coordinator = make(time, "a", "b")
    coordinator.initiate()
    failed = coordinator.unregister("a")
    assert failed is not None
    assert "'a' left" in failed.reason
    coordinator.initiate()
    assert coordinator.acknowledge(ack("b", 2))


def test_operator_that_leaves_after_its_report_changes_nothing(time: Time) -> None:
    coordinator = make(time, "a", "b")
    coordinator.initiate()
    coordinator.acknowledge(ack("a", 1))
    assert coordinator.unregister("a") is None
    assert coordinator.unregister("nobody") is None
    assert coordinator.acknowledge(ack("b", 1))


def test_repeated_report_changes_nothing_and_is_not_counted_twice(time: Time) -> None:
    coordinator = make(time, "a", "b")
    coordinator.initiate()
    first = ack("a", 1, size_bytes=1, offsets={"p": "1"})
    coordinator.acknowledge(first)
    before = coordinator.phase
    assert not coordinator.acknowledge(ack("a", 1, size_bytes=2, offsets={"p": "2"}))
    assert coordinator.phase == before
    assert coordinator.snapshots == {"a": first}
    assert coordinator.pending == ("b",)
    assert coordinator.acknowledge(ack("b", 1))
    assert not coordinator.acknowledge(ack("b", 1))  # the last one, again


def test_report_of_a_negative_size_is_refused(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    with pytest.raises(ValueError, match="-1 bytes"):
        coordinator.acknowledge(ack("a", 1, size_bytes=-1))
    assert coordinator.pending == ("a",)


def test_no_later_step_begins_before_the_last_report(time: Time) -> None:
    coordinator = make(time, "a", "b")
    coordinator.initiate()
    coordinator.acknowledge(ack("a", 1))
    for attempt in (lambda: coordinator.begin("pre_commit"), lambda: coordinator.begin("commit"), coordinator.done):
        with pytest.raises(CheckpointError, match="no report yet of 'b'"):
            attempt()
    assert coordinator.epoch == 0


def test_steps_go_forward_only_and_may_be_left_out(time: Time) -> None:
    coordinator = make(time, "a")
    coordinator.initiate()
    coordinator.acknowledge(ack("a", 1))
    coordinator.begin("persist")
    for step in ("align", "snapshot", "pre_commit", "persist", "rest"):
        with pytest.raises(CheckpointError, match="does not follow"):
            coordinator.begin(step)
    assert coordinator.done().epoch == 1


def test_steps_when_nothing_is_in_progress_are_errors(time: Time) -> None:
    coordinator = make(time, "a")
    for act in (lambda: coordinator.begin("commit"), coordinator.done):
        with pytest.raises(CheckpointError, match="none is in progress"):
            act()
