"""Alignment of one operator's inputs."""

from __future__ import annotations

import pytest

from lsmstate.checkpoint import CheckpointBarrier
from lsmstate.checkpoint.runtime.aligner import Aligner
from lsmstate.errors import CheckpointError


def barrier(number: int, epoch: int = 1) -> CheckpointBarrier:
    return CheckpointBarrier(epoch, checkpoint_id=number)


def test_an_input_that_has_delivered_the_barrier_is_blocked_until_the_rest_has() -> None:
    aligner = Aligner(["a", "b", "c"])
    assert aligner.deliver(1, barrier(1))
    assert aligner.blocked == {1}
    assert aligner.deliver(0, barrier(1))
    assert aligner.blocked == {0, 1}
    assert aligner.missing == [2]
    assert not aligner.is_complete()
    aligner.deliver(2, barrier(1))
    assert aligner.is_complete()
    aligner.finish()
    assert aligner.blocked == frozenset()
    assert not aligner.is_complete()


def test_a_single_input_passes_at_once() -> None:
    aligner = Aligner(["a"])
    aligner.deliver(0, barrier(1))
    assert aligner.is_complete()


def test_a_second_barrier_on_a_blocked_input_is_an_error() -> None:
    aligner = Aligner(["a", "b"])
    aligner.deliver(0, barrier(1))
    for again in (barrier(1), barrier(2)):
        with pytest.raises(CheckpointError, match="input 'a' is blocked"):
            aligner.deliver(0, again)
    assert aligner.blocked == {0}


def test_an_input_that_ended_counts_as_aligned() -> None:
    aligner = Aligner(["a", "b"])
    aligner.end(1)
    aligner.deliver(0, barrier(1))
    assert aligner.is_complete()


def test_an_input_that_ends_during_alignment_completes_it() -> None:
    aligner = Aligner(["a", "b"])
    aligner.deliver(0, barrier(1))
    assert not aligner.is_complete()
    aligner.end(1)
    assert aligner.is_complete()
    assert not aligner.has_ended


def test_a_barrier_after_the_end_of_its_input_is_an_error() -> None:
    aligner = Aligner(["a", "b"])
    aligner.end(0)
    with pytest.raises(CheckpointError, match="'a' has ended"):
        aligner.deliver(0, barrier(1))


def test_barriers_of_a_cancelled_attempt_mean_nothing() -> None:
    aligner = Aligner(["a", "b"])
    aligner.deliver(0, barrier(3))
    assert aligner.cancel(3)
    assert aligner.blocked == frozenset()
    assert not aligner.deliver(1, barrier(3))
    assert not aligner.deliver(0, barrier(2))
    assert aligner.barrier is None


def test_a_later_attempt_takes_the_place_of_one_that_was_given_up() -> None:
    aligner = Aligner(["a", "b"])
    aligner.deliver(0, barrier(3))
    assert aligner.deliver(1, barrier(4))
    assert aligner.blocked == {1}
    assert not aligner.deliver(0, barrier(3)), "the old one comes late"
    assert aligner.deliver(0, barrier(4))
    assert aligner.is_complete()


def test_a_checkpoint_after_all_inputs_have_ended_waits_for_their_ends() -> None:
    aligner = Aligner(["a", "b"])
    aligner.end(0)
    assert aligner.start(barrier(1))
    assert not aligner.is_complete()
    aligner.end(1)
    assert aligner.is_complete()
    aligner.finish()
    assert not aligner.start(barrier(1)), "it is over"
