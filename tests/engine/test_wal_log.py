"""The log alone: what was acknowledged is replayed in order, damage is told from what a crash leaves, one owner."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lsmstate import (
    CorruptionError,
    FencedError,
    FormatVersionError,
    NotAStateError,
    SnapshotExpired,
    StoreClosedError,
    StorePoisonedError,
)
from lsmstate.engine import wal_frames
from lsmstate.engine.wal import WriteAheadLog
from lsmstate.manifest.version import LogMark
from tests.support.crash_check import unsynced_lost
from tests.support.simfs import SimFileSystem

KIND = 16
DIR = "/log"


def disk() -> SimFileSystem:
    return SimFileSystem.of({DIR: None})


def opened(fs: SimFileSystem, start: LogMark | None = None, *, log_id: str = "mine") -> WriteAheadLog:
    log = WriteAheadLog(fs.spawn(), DIR, log_id, "a")
    log.begin(start)
    return log


def put(log: WriteAheadLog, *payloads: bytes) -> list[int]:
    """Appends records, each acknowledged before the next; gives their positions."""
    positions = []
    for payload in payloads:
        positions.append(log.append(KIND, [payload[:2], memoryview(payload[2:])]))
        log.sync(positions[-1])
    return positions


def payloads(log: WriteAheadLog, after: int = 0) -> list[bytes]:
    return [record.payload for record in log.replay(after)]


THREE = (b"first", b"", b"the third one")


def test_replay_begins_strictly_after_the_position() -> None:
    fs = disk()
    positions = put(opened(fs), *THREE)
    log = opened(fs)
    assert log.position == positions[-1]
    for n, position in enumerate([0, *positions]):
        assert payloads(log, position) == list(THREE[n:])
    assert [record.position for record in log.replay(0)] == positions


def test_positions_go_on_over_segments_and_handles() -> None:
    fs, positions, sent = disk(), [0], []
    for turn in range(6):
        log = opened(fs)
        assert log.position == positions[-1]
        for n in range(turn):
            sent.append(f"{turn} {n}".encode())
            positions += put(log, sent[-1])
            if n % 2:
                log.roll()
        if turn % 2:
            log.close()
    assert positions == sorted(set(positions))
    assert payloads(opened(fs)) == sent


def test_what_was_truncated_cannot_be_replayed_and_the_rest_can() -> None:
    fs = disk()
    log = opened(fs)
    positions = put(log, *THREE)
    log.roll()
    positions += put(log, b"fourth")
    log.truncate_before(positions[1])
    assert payloads(log, positions[1]) == [THREE[2], b"fourth"]
    log.truncate_before(positions[2])
    assert len(fs.list_dir(DIR)) == 1
    assert payloads(opened(fs), positions[2]) == [b"fourth"]
    with pytest.raises(SnapshotExpired, match="dropped"):
        opened(fs).replay(positions[1])


def test_log_of_which_all_was_dropped_goes_on_at_its_position() -> None:
    fs = disk()
    log = opened(fs)
    (position,) = put(log, b"row")
    for _ in range(3):
        log.roll()
        log.truncate_before(position)
        log.close()
        log = opened(fs)
        assert log.position == position
        assert payloads(log, position) == []


def test_position_beyond_the_log_is_damage() -> None:
    fs = disk()
    (position,) = put(opened(fs), b"row")
    with pytest.raises(CorruptionError):
        opened(fs).replay(position + 1)
    with pytest.raises(CorruptionError):
        opened(fs, LogMark(9, position))


def test_handle_that_was_overtaken_acknowledges_nothing() -> None:
    fs = disk()
    zombie = opened(fs)
    put(zombie, b"kept")
    other = opened(fs)
    with pytest.raises(FencedError, match="reopen"):
        put(zombie, b"too late")
    for act in (zombie.mark, zombie.roll, lambda: zombie.append(KIND, [b""])):
        with pytest.raises(FencedError):
            act()
    put(other, b"after")
    assert payloads(opened(fs)) == [b"kept", b"after"]


@pytest.mark.parametrize("epochs", [1, 5])
def test_handle_that_slept_while_others_came_and_went_acknowledges_nothing(epochs: int) -> None:
    fs = disk()
    zombie = opened(fs)
    put(zombie, b"kept")
    for _ in range(epochs):
        other = opened(fs)
        other.roll()
        other.truncate_before(other.position)
    with pytest.raises(FencedError):
        put(zombie, b"too late")
    assert payloads(opened(fs), other.position) == []


def test_closed_log_takes_no_records() -> None:
    log = opened(disk())
    log.close()
    log.close()
    with pytest.raises(StoreClosedError):
        log.append(KIND, [b""])


def test_log_of_another_owner_is_refused() -> None:
    fs = disk()
    put(opened(fs), b"row")
    with pytest.raises(NotAStateError, match="mine"):
        opened(fs, log_id="yours")


def test_log_of_a_newer_format_is_refused() -> None:
    fs = disk()
    put(opened(fs), b"row")
    tree = {path: data and data.replace(b"log 1", b"log 2", 1) for path, data in fs.tree().items()}
    with pytest.raises(FormatVersionError):
        opened(SimFileSystem.of(tree))


def test_record_that_is_too_large_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = disk()
    log = opened(fs)
    monkeypatch.setattr(wal_frames, "RECORD_MAX_BYTES", 100)
    with pytest.raises(ValueError, match="at most 100 bytes"):
        log.append(KIND, [bytes(101)])
    assert put(log, bytes(100))
    assert payloads(opened(fs)) == [bytes(100)]


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
def test_every_flipped_byte_of_a_log_is_refused_or_harmless_or_a_torn_tail(closed: bool, figures) -> None:
    fs = disk()
    log = opened(fs)
    put(log, *THREE)
    log.roll()
    put(log, b"fourth", b"fifth")
    if closed:
        log.close()
    sent = [*THREE, b"fourth", b"fifth"]
    outcomes = {"right": 0, "refused": 0, "torn": 0}
    for path, data in fs.tree().items():
        for at in range(len(data or b"")):
            damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
            try:
                got = payloads(opened(SimFileSystem.of({**fs.tree(), path: damaged})))
            except (CorruptionError, FormatVersionError):
                outcomes["refused"] += 1
                continue
            assert got in (sent, sent[:4]), "other records"
            outcomes["right" if got == sent else "torn"] += 1
    assert outcomes["refused"]
    assert bool(outcomes["torn"]) is not closed, outcomes  # only the last record of a log that nobody closed
    for outcome, count in outcomes.items():
        figures.add(f"flipped bytes of logs, {outcome}", count)


def test_every_truncation_of_the_last_segment_leaves_a_beginning_and_of_others_is_refused() -> None:
    fs = disk()
    log = opened(fs)
    put(log, *THREE)
    log.roll()
    put(log, b"fourth", b"fifth")
    sent = [*THREE, b"fourth", b"fifth"]
    first, last = sorted(path for path, data in fs.tree().items() if data)
    for path in (first, last):
        data = fs.tree()[path] or b""
        for size in range(len(data)):
            cut = SimFileSystem.of({**fs.tree(), path: data[:size]})
            try:
                got = payloads(opened(cut))
            except CorruptionError:
                assert path == first
                continue
            assert got == sent[: len(got)]
            assert len(got) >= 3
            assert path == last or got == sent


def test_tail_with_a_hole_that_was_never_synced_is_cut() -> None:
    """Blocks reach a disk in any order: a whole record may lie behind a lost one, and neither was acknowledged."""
    fs = disk()
    log = opened(fs)
    put(log, b"acknowledged")
    second = log.append(KIND, [b"hole" * 10])
    log.append(KIND, [b"whole"])
    (path,) = (path for path, data in fs.tree().items() if data)
    data = fs.tree()[path] or b""
    at = data.index(b"hole")
    holed = SimFileSystem.of({**fs.tree(), path: data[:at] + bytes(40) + data[at + 40 :]})
    assert payloads(opened(holed)) == [b"acknowledged"]
    log.sync(second)
    log.append(KIND, [b"knows better"])
    data = fs.tree()[path] or b""
    holed = SimFileSystem.of({**fs.tree(), path: data[:at] + bytes(40) + data[at + 40 :]})
    with pytest.raises(CorruptionError, match="synced"):
        opened(holed)


def test_torn_tail_is_cut_by_the_next_segment_and_never_rewritten() -> None:
    fs = disk()
    put(opened(fs), b"kept")
    (path,) = (path for path, data in fs.tree().items() if data)
    torn = SimFileSystem.of({**fs.tree(), path: (fs.tree()[path] or b"") + b"\xf5\x1cWl torn"})
    before = torn.tree()[path]
    put(opened(torn), b"after")
    assert torn.tree()[path] == before
    assert payloads(opened(torn)) == [b"kept", b"after"]


def test_search_of_a_hostile_tail_ends_soon() -> None:
    fs = disk()
    put(opened(fs), b"kept")
    (path,) = (path for path, data in fs.tree().items() if data)
    frame = wal_frames._HEAD.pack(wal_frames._MAGIC, KIND, 1 << 20, 0, 0) + bytes(8)
    hostile = SimFileSystem.of({**fs.tree(), path: (fs.tree()[path] or b"") + frame * (1 << 16)})
    with pytest.raises(CorruptionError, match="too many"):
        opened(hostile)


# ---- group commit


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
