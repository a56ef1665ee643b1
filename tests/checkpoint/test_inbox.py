"""The queues of a task: back-pressure, fairness, blocking, overtaking."""

from __future__ import annotations

import threading
from time import monotonic

import pyarrow as pa
import pytest

from lsmstate.checkpoint import CheckpointBarrier
from lsmstate.checkpoint.runtime.flight import pack, unpack
from lsmstate.checkpoint.runtime.inbox import Commit, End, Inbox, InboxClosed, Mark, Rows
from lsmstate.errors import CorruptionError


def some_rows(number: int) -> Rows:
    return Rows(pa.record_batch({"n": [number]}))


def test_a_producer_waits_while_its_queue_is_full_and_goes_on_when_there_is_room() -> None:
    inbox = Inbox(["a"], capacity=2)
    sent: list[int] = []

    def produce() -> None:
        for number in range(20):
            inbox.wait_for_room(0)
            sent.append(number)
            inbox.put(0, some_rows(number))

    producer = threading.Thread(target=produce)
    producer.start()
    for number in range(20):
        taken = inbox.take()
        assert isinstance(taken, tuple)
        assert taken[1] == some_rows(number)
        assert len(sent) <= number + 4, "two in the queue, one taken, one about to be put"
    producer.join()


def test_barriers_marks_and_ends_pass_a_full_queue() -> None:
    inbox = Inbox(["a"], capacity=1)
    inbox.put(0, some_rows(1))
    for item in (Mark(3), CheckpointBarrier(1), End()):
        inbox.put(0, item)
    assert [inbox.take() for _ in range(4)] == [(0, some_rows(1)), (0, Mark(3)), (0, CheckpointBarrier(1)), (0, End())]


def test_inputs_are_taken_in_turns_and_blocked_ones_not_at_all() -> None:
    inbox = Inbox(["a", "b"])
    for number in range(4):
        inbox.put(0, some_rows(number))
        inbox.put(1, some_rows(number))
    order = [inbox.take() for _ in range(4)]
    assert [taken[0] for taken in order if isinstance(taken, tuple)] == [0, 1, 0, 1]
    rest = [inbox.take(blocked={0}) for _ in range(2)]
    assert [taken[0] for taken in rest if isinstance(taken, tuple)] == [1, 1]
    assert inbox.take(blocked={0}, deadline=monotonic()) is None


def test_commands_come_before_rows() -> None:
    inbox = Inbox(["a"])
    inbox.put(0, some_rows(1))
    inbox.command(Commit(4))
    assert inbox.take() == Commit(4)


def test_closing_ends_everybody_who_waits() -> None:
    inbox = Inbox(["a"], capacity=1)
    inbox.put(0, some_rows(1))
    ended: list[str] = []

    def wait(name: str, call: object) -> None:
        try:
            call()  # type: ignore[operator]
        except InboxClosed:
            ended.append(name)

    threads = [
        threading.Thread(target=wait, args=("producer", lambda: inbox.wait_for_room(0))),
        threading.Thread(target=wait, args=("consumer", lambda: inbox.take(blocked={0}))),
    ]
    for thread in threads:
        thread.start()
    inbox.close()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["consumer", "producer"]
    inbox.command(Commit(1))  # nobody will take it
    with pytest.raises(InboxClosed):
        inbox.put(0, some_rows(2))


def test_a_barrier_overtakes_the_rows_before_it_and_they_stay() -> None:
    inbox = Inbox(["a"])
    barrier = CheckpointBarrier(2, checkpoint_id=7)
    assert inbox.overtake(0, 7) is None
    for item in (some_rows(1), Mark(5), barrier, some_rows(2)):
        inbox.put(0, item)
    assert inbox.overtake(0, 6) is None
    assert inbox.overtake(0, 7) == [some_rows(1), Mark(5)]
    assert [inbox.take() for _ in range(3)] == [(0, some_rows(1)), (0, Mark(5)), (0, some_rows(2))]


def test_records_in_flight_come_back_as_they_were() -> None:
    items = [some_rows(1), Mark(-5), CheckpointBarrier(1), some_rows(2)]
    assert unpack("here", pack(items)) == [some_rows(1), Mark(-5), some_rows(2)]


@pytest.mark.parametrize("damaged", [b"", b"X", b"W123", b"R", b"Rnonsense"])
def test_records_in_flight_that_are_none_are_damage(damaged: bytes) -> None:
    with pytest.raises(CorruptionError, match="here"):
        unpack("here", [damaged])
