"""Damage on disk: the correct answer or one documented error, for every byte of a small state.

Each case reads everything that can be read: every retained epoch by scan, and the newest by probe.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lsmstate import CorruptionError, FormatVersionError, LsmStateError, NotAStateError
from lsmstate.sstable.cache import FileCache
from tests.support.crash_memo import decoded_once
from tests.support.damaged import Sound, Tree
from tests.support.simfs import SimFileSystem
from tests.support.sizes import size
from tests.support.small_store import Reading, build, compact, open_store, read_all

DOCUMENTED = (CorruptionError, FormatVersionError, NotAStateError)
VERIFY_EVERY = size("verify_every")  # reads are checked for every byte, `verify` for every fifth
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


def files(tree: Tree) -> list[str]:
    """The distinct files: a head is a second name of a manifest, so damage shows under both."""
    return sorted(path for path, data in tree.items() if data and "/head-" not in path)


def check(fs: SimFileSystem, expected: Reading, *, verify: bool, cache: FileCache | None = None) -> str:
    """'right' or 'refused'; fails on anything else. What is refused or harmed must not pass `verify` either."""
    try:
        got = read_all(fs, cache=cache)
    except DOCUMENTED:
        outcome = "refused"
    else:
        assert got == expected, "silently different"
        outcome = "right"
    if verify:
        try:
            with open_store(fs, read_only=True) as store:
                assert store.verify(), "verify found nothing"
        except DOCUMENTED:
            pass
    return outcome


def all_bytes(tree: Tree, part: int) -> Iterator[tuple[str, int]]:
    numbered = ((path, at) for path in files(tree) for at in range(len(tree[path] or b"")))
    return ((path, at) for number, (path, at) in enumerate(numbered) if number % SLICES == part)


@pytest.mark.parametrize("part", range(SLICES))
def test_every_flipped_byte_is_refused_or_harmless(part: int, sound: tuple[Sound, Reading], figures) -> None:
    whole, expected = sound
    tree = whole.tree
    masks = [0xFF] if size("flipped_bits") == 1 else [1 << bit for bit in range(8)]
    for number, (path, at) in enumerate(all_bytes(tree, part)):
        data = tree[path] or b""
        for mask in masks:
            damaged = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
            fs = whole.changed(path, damaged)
            outcome = check(fs, expected, verify=number % VERIFY_EVERY == 0, cache=whole.files(fs))
            figures.add(f"flipped bytes, {outcome}", 1)
    figures.add("flipped bytes, silently different", 0)


@pytest.mark.parametrize("part", range(SLICES))
def test_every_truncation_is_refused(part: int, sound: tuple[Sound, Reading], figures) -> None:
    whole, expected = sound
    for path, end in all_bytes(whole.tree, part):
        data = whole.tree[path] or b""
        fs = whole.changed(path, data[:end])
        check(fs, expected, verify=False, cache=whole.files(fs))
        figures.add("truncations", 1)


def test_zeroed_sectors_are_refused_or_harmless(sound: tuple[Sound, Reading], figures) -> None:
    tree, expected = sound[0].tree, sound[1]
    for path in files(tree):
        data = tree[path] or b""
        for at in range(0, len(data), 512):
            zeroed = data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :]
            check(sound[0].changed(path, zeroed), expected, verify=zeroed != data)
            figures.add("zeroed sectors", 1)


def test_swapped_sectors_are_refused_or_harmless(sound: tuple[Sound, Reading]) -> None:
    tree, expected = sound[0].tree, sound[1]
    for path in files(tree):
        data = tree[path] or b""
        for at in range(0, len(data) - 1024, 512):
            swapped = data[:at] + data[at + 512 : at + 1024] + data[at : at + 512] + data[at + 1024 :]
            check(sound[0].changed(path, swapped), expected, verify=swapped != data)


def test_swapped_files_are_refused(sound: tuple[Sound, Reading], figures) -> None:
    tree, expected = sound[0].tree, sound[1]
    paths = sorted(path for path, data in tree.items() if data)
    for one in paths:
        for other in paths:
            if one < other and tree[one] != tree[other]:
                check(SimFileSystem.of({**tree, one: tree[other], other: tree[one]}), expected, verify=False)
                figures.add("swapped files", 1)


def test_a_missing_file_is_refused(sound: tuple[Sound, Reading]) -> None:
    tree = sound[0].tree
    newest = max(path for path in tree if "/manifest/0" in path)
    for path in files(tree):
        rest = {p: d for p, d in tree.items() if p != path}
        if path == newest:
            continue  # its other name, the head, is still there
        with pytest.raises(LsmStateError):
            read_all(SimFileSystem.of(rest))


def test_a_state_without_heads_is_not_taken_for_a_new_one(sound: tuple[Sound, Reading]) -> None:
    tree = sound[0].tree
    with pytest.raises(CorruptionError):
        read_all(SimFileSystem.of({p: d for p, d in tree.items() if "/head-" not in p}))


def test_a_head_that_moved_back_is_refused(sound: tuple[Sound, Reading]) -> None:
    tree = sound[0].tree
    heads = sorted(path for path in tree if "/head-" in path)
    with pytest.raises(CorruptionError):
        read_all(SimFileSystem.of({**tree, heads[-1]: tree[heads[-2]]}))
