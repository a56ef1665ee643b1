"""Damage to a state that holds every type: the correct answer or one documented error, whoever reads.

Every byte in the full run; by default every STEP-th, which hits every section of every file.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from lsmstate import CorruptionError, FormatVersionError, NotAStateError
from lsmstate.cli.sstable_report import describe as describe_file
from lsmstate.cli.sstable_rows import pick_rows
from lsmstate.cli.state_report import describe as describe_state
from lsmstate.sstable.reader import SSTable
from tests.support.crash_memo import decoded_once
from tests.support.damaged import Sound, Tree
from tests.support.nested_store import build, compact, open_store, read_all
from tests.support.simfs import SimFileSystem
from tests.support.sizes import size
from tests.support.small_store import Reading

DOCUMENTED = (CorruptionError, FormatVersionError, NotAStateError)
STEP = size("typed_bytes_every")
ASK_ALL_EVERY = 7  # reads are checked in every case, tools in every seventh
SLICES = 8


@pytest.fixture(scope="module")
def sound() -> tuple[Sound, Reading]:
    fs = SimFileSystem()
    build(fs)
    compact(fs)
    return Sound(fs), read_all(fs)


@pytest.fixture(autouse=True)
def decoders() -> Iterator[None]:
    with decoded_once():
        yield


def places(tree: Tree, step: int, part: int) -> Iterator[tuple[str, int]]:
    """Places in all distinct files: a head is a second name of a manifest."""
    files = sorted(path for path, data in tree.items() if data and "/head-" not in path)
    every = [(path, at) for path in files for at in range(0, len(tree[path] or b""), step)]
    return iter(every[part::SLICES])


def dumped(fs: SimFileSystem, path: str) -> tuple[list[str], str]:
    """The problems that `lsmstate dump` tells of a file, and its rows."""
    table = SSTable(fs, path)
    report = describe_file(table)
    rows = pick_rows(table, 1000, [])
    assert json.dumps(report, allow_nan=False)
    return report["checks"]["problems"], json.dumps(rows, allow_nan=False)


def check_tools(fs: SimFileSystem, path: str, rows: str | None) -> None:
    """Verify finds the damage; dump finds it too, or shows the rows that are there; inspect shows what it can."""
    with contextlib.suppress(*DOCUMENTED), open_store(fs, read_only=True) as store:
        assert store.verify(), "verify found nothing"
    with contextlib.suppress(*DOCUMENTED):
        assert json.dumps(describe_state(fs, "/state"), allow_nan=False)
    if rows is not None:
        with contextlib.suppress(*DOCUMENTED):
            problems, shown = dumped(fs, path)
            assert problems or shown == rows


@pytest.mark.parametrize("part", range(SLICES))
def test_flipped_bytes_under_every_type_are_refused_or_harmless(
    part: int, sound: tuple[Sound, Reading], figures
) -> None:
    whole, expected = sound
    sound_fs = SimFileSystem.of(whole.tree)
    rows = {path: dumped(sound_fs, path)[1] for path in whole.tree if path.endswith(".sst")}
    for number, (path, at) in enumerate(places(whole.tree, STEP, part)):
        data = whole.tree[path] or b""
        damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        fs = whole.changed(path, damaged)
        try:
            got = read_all(fs, cache=whole.files(fs))
        except DOCUMENTED:
            outcome = "refused"
        else:
            assert got == expected, "silently different"
            outcome = "right"
        figures.add(f"flipped bytes under every type, {outcome}", 1)
        if number % ASK_ALL_EVERY == 0:
            check_tools(fs, path, rows.get(path))
    figures.add("flipped bytes under every type, silently different", 0)
