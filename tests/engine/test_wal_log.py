"""The log alone: what was acknowledged is replayed in order, strictly after a position, and it has one owner."""

from __future__ import annotations

import pytest

from lsmstate import (
    CorruptionError,
    FencedError,
    FormatVersionError,
    NotAStateError,
    SnapshotExpired,
    StoreClosedError,
)
from lsmstate.engine import wal_frames
from lsmstate.manifest.version import LogMark
from tests.support.log_alone import DIR, KIND, THREE, disk, opened, payloads, put
from tests.support.simfs import SimFileSystem


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
