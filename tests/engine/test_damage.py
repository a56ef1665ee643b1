"""Damage on disk: the correct answer or one documented error, for every byte of a small state.

Each case reads everything that can be read: every retained epoch by scan, and the newest by probe.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lsmstate import CorruptionError, FormatVersionError, LsmStateError, NotAStateError
from tests.support.simfs import SimFileSystem
from tests.support.small_store import Reading, build, compact, open_small, read_all

DOCUMENTED = (CorruptionError, FormatVersionError, NotAStateError)
FULL = os.environ.get("LSMSTATE_TEST_SIZE") == "full"
VERIFY_EVERY = 1 if FULL else 5  # reads are checked for every byte, `verify` for every fifth
SLICES = 8
Tree = dict[str, bytes | None]


@pytest.fixture(scope="module")
def sound() -> tuple[Tree, Reading]:
    fs = SimFileSystem()
    build(fs)
    compact(fs)
    return fs.tree(), read_all(fs)


def files(tree: Tree) -> list[str]:
    """The distinct files: a head is a second name of a manifest, so damage shows under both."""
    return sorted(path for path, data in tree.items() if data and "/head-" not in path)


def changed(tree: Tree, path: str, data: bytes) -> SimFileSystem:
    """The state with one file's content replaced, under all its names."""
    return SimFileSystem.of({p: data if d == tree[path] else d for p, d in tree.items()})


def check(fs: SimFileSystem, expected: Reading, *, verify: bool) -> str:
    """'right' or 'refused'; fails on anything else. What is refused or harmed must not pass `verify` either."""
    try:
        got = read_all(fs)
    except DOCUMENTED:
        outcome = "refused"
    else:
        assert got == expected, "silently different"
        outcome = "right"
    if verify:
        try:
            with open_small(fs, read_only=True) as store:
                assert store.verify(), "verify found nothing"
        except DOCUMENTED:
            pass
    return outcome


def all_bytes(tree: Tree, part: int) -> Iterator[tuple[str, int]]:
    numbered = ((path, at) for path in files(tree) for at in range(len(tree[path] or b"")))
    return ((path, at) for number, (path, at) in enumerate(numbered) if number % SLICES == part)


@pytest.mark.parametrize("part", range(SLICES))
def test_every_flipped_byte_is_refused_or_harmless(part: int, sound: tuple[Tree, Reading], figures) -> None:
    tree, expected = sound
    masks = [1 << bit for bit in range(8)] if FULL else [0xFF]
    for number, (path, at) in enumerate(all_bytes(tree, part)):
        data = tree[path] or b""
        for mask in masks:
            damaged = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
            outcome = check(changed(tree, path, damaged), expected, verify=number % VERIFY_EVERY == 0)
            figures.add(f"flipped bytes, {outcome}", 1)
    figures.add("flipped bytes, silently different", 0)


@pytest.mark.parametrize("part", range(SLICES))
def test_every_truncation_is_refused(part: int, sound: tuple[Tree, Reading], figures) -> None:
    tree, expected = sound
    for path, size in all_bytes(tree, part):
        data = tree[path] or b""
        check(changed(tree, path, data[:size]), expected, verify=False)
        figures.add("truncations", 1)


def test_zeroed_sectors_are_refused_or_harmless(sound: tuple[Tree, Reading], figures) -> None:
    tree, expected = sound
    for path in files(tree):
        data = tree[path] or b""
        for at in range(0, len(data), 512):
            zeroed = data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :]
            check(changed(tree, path, zeroed), expected, verify=zeroed != data)
            figures.add("zeroed sectors", 1)


def test_swapped_sectors_are_refused_or_harmless(sound: tuple[Tree, Reading]) -> None:
    tree, expected = sound
    for path in files(tree):
        data = tree[path] or b""
        for at in range(0, len(data) - 1024, 512):
            swapped = data[:at] + data[at + 512 : at + 1024] + data[at : at + 512] + data[at + 1024 :]
            check(changed(tree, path, swapped), expected, verify=swapped != data)


def test_swapped_files_are_refused(sound: tuple[Tree, Reading], figures) -> None:
    tree, expected = sound
    paths = sorted(path for path, data in tree.items() if data)
    for one in paths:
        for other in paths:
            if one < other and tree[one] != tree[other]:
                check(SimFileSystem.of({**tree, one: tree[other], other: tree[one]}), expected, verify=False)
                figures.add("swapped files", 1)


def test_a_missing_file_is_refused(sound: tuple[Tree, Reading]) -> None:
    tree, _ = sound
    newest = max(path for path in tree if "/manifest/0" in path)
    for path in files(tree):
        rest = {p: d for p, d in tree.items() if p != path}
        if path == newest:
            continue  # its other name, the head, is still there
        with pytest.raises(LsmStateError):
            read_all(SimFileSystem.of(rest))


def test_a_state_without_heads_is_not_taken_for_a_new_one(sound: tuple[Tree, Reading]) -> None:
    tree, _ = sound
    with pytest.raises(CorruptionError):
        read_all(SimFileSystem.of({p: d for p, d in tree.items() if "/head-" not in p}))


def test_a_head_that_moved_back_is_refused(sound: tuple[Tree, Reading]) -> None:
    tree, _ = sound
    heads = sorted(path for path in tree if "/head-" in path)
    with pytest.raises(CorruptionError):
        read_all(SimFileSystem.of({**tree, heads[-1]: tree[heads[-2]]}))
