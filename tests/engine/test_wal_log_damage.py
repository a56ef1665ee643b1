"""The log alone, damaged: what a crash leaves is cut, everything else is refused."""

from __future__ import annotations

import pytest

from lsmstate import (
    CorruptionError,
    FormatVersionError,
)
from lsmstate.engine import wal_frames
from tests.support.log_alone import KIND, THREE, disk, opened, payloads, put
from tests.support.simfs import SimFileSystem


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
