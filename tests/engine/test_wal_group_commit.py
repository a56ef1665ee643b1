"""Group commit: writers that wait share one fsync, and its failure."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lsmstate import (
    StorePoisonedError,
)
from lsmstate.engine.wal import WriteAheadLog
from tests.support.crash_check import unsynced_lost
from tests.support.log_alone import DIR, KIND, disk, opened, payloads
from tests.support.simfs import SimFileSystem


class Gate:
    """A fault that holds the first fsync of a segment until it is told to go on, and counts them all."""

    def __init__(self, fail: bool = False) -> None:
        self.entered, self.released, self.syncs, self.fail = threading.Event(), threading.Event(), 0, fail

    def __call__(self, op: str, path: str, at: int) -> None:
        if op == "sync":
            self.syncs += 1
            if self.syncs == 1:
                self.entered.set()
                assert self.released.wait(30)
                if self.fail:
                    raise OSError(5, "gone", path)


def waiting(fs: SimFileSystem, gate: Gate, writers: int) -> tuple[WriteAheadLog, list[threading.Thread], list[object]]:
    """A log whose first writer is held in its fsync while others have written and wait for theirs."""
    log = WriteAheadLog(fs, DIR, "mine", "a")
    log.begin()
    fs.fault = gate
    outcomes: list[object] = [None] * writers
    written = threading.Barrier(writers)

    def write(n: int) -> None:
        try:
            position = log.append(KIND, [f"writer {n}".encode()])
            if n:
                written.wait(30)
            log.sync(position)
            outcomes[n] = position
        except Exception as error:
            outcomes[n] = error

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    threads[0].start()
    assert gate.entered.wait(30)
    for thread in threads[1:]:
        thread.start()
    written.wait(30)  # nobody is held up by the fsync under way
    return log, threads, outcomes


def finish(gate: Gate, threads: list[threading.Thread]) -> None:
    gate.released.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_writers_that_come_during_an_fsync_share_the_next_one() -> None:
    fs, gate = disk(), Gate()
    log, threads, outcomes = waiting(fs, gate, 12)
    finish(gate, threads)
    assert sorted(int(str(outcome)) for outcome in outcomes) == sorted(record.position for record in log.replay(0))
    assert gate.syncs == 2
    assert sorted(payloads(opened(unsynced_lost(fs)))) == sorted(f"writer {n}".encode() for n in range(12))


def test_failed_fsync_fails_all_who_wait_for_it_and_all_who_come() -> None:
    fs, gate = disk(), Gate(fail=True)
    log, threads, outcomes = waiting(fs, gate, 5)
    finish(gate, threads)
    assert isinstance(outcomes[0], OSError)
    assert all(isinstance(outcome, StorePoisonedError) for outcome in outcomes[1:])
    assert gate.syncs == 1
    later: list[Callable[[], object]] = [lambda: log.append(KIND, [b""]), log.mark, lambda: log.sync(log.written)]
    for act in later:
        with pytest.raises(StorePoisonedError, match="reopen"):
            act()


def test_closing_waits_for_the_fsync_under_way() -> None:
    fs, gate = disk(), Gate()
    log, threads, outcomes = waiting(fs, gate, 3)
    closer = threading.Thread(target=log.close)
    closer.start()
    finish(gate, [*threads, closer])
    assert all(isinstance(outcome, int) for outcome in outcomes)
    assert len(payloads(opened(fs))) == 3
