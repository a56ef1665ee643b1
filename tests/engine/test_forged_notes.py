"""Merge notes that somebody else wrote: what does not agree with the state is not adopted, and the state goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from lsmstate.manifest.codec import decode, encode
from tests.support.states import PATH, World, batch, plain

Forge = Callable[[dict[str, Any]], None]


def left_outside(body: dict[str, Any]) -> None:
    """Says that rows are left which lie after all of the run."""
    run = body["taken"][0][3]
    body["taken"][0][4] = [run[0], run[1] + 5, run[2] + 5, 1, run[5] + 1, run[5] + 1, *run[6:]]


def left_of_another_side(body: dict[str, Any]) -> None:
    run = body["taken"][0][3]
    body["taken"][0][4] = [200, *run[1:]]


def more_left_than_there_was(body: dict[str, Any]) -> None:
    run = body["taken"][0][3]
    body["taken"][0][4] = [*run[:3], run[3] + 1, *run[4:]]


def file_that_is_not_there(body: dict[str, Any]) -> None:
    body["added"][0][0] = body["added"][0][0].replace("-00", "-99", 1)


def file_of_another_digest(body: dict[str, Any]) -> None:
    body["added"][0][2] = "0" * 32


@pytest.mark.parametrize(
    "forge",
    [left_outside, left_of_another_side, more_left_than_there_was, file_that_is_not_there, file_of_another_digest],
)
def test_forged_note_is_not_adopted_and_the_state_can_be_opened(forge: Forge) -> None:
    with World() as world:
        store = world.open()
        for epoch in range(1, 5):
            store.append(0, batch((epoch, epoch, "v")))
            store.snapshot_epoch(epoch)
        rows = Counter(plain(store.scan(0)))
        store._core.compactor._work(store._core.working, major=True)
        (name,) = world.files("merges")
        path = f"{PATH}/merges/{name}"
        _, body = decode(path, world.fs.read(path, 1 << 20), name)
        forge(body)
        world.fs.unlink(path)
        forged = world.fs.create(path)
        forged.write([encode(name, body)])
        forged.close()
        store.snapshot_epoch(5)
        store.close()
        again = world.open()
        assert Counter(plain(again.scan(0))) == rows
        assert again.verify() == []
        again.compact(major=True)
        again.snapshot_epoch(6)
        assert Counter(plain(again.scan(0))) == rows


def test_note_as_it_was_written_is_adopted() -> None:
    """Else the test above could not fail."""
    with World() as world:
        store = world.open()
        for epoch in range(1, 5):
            store.append(0, batch((epoch, epoch, "v")))
            store.snapshot_epoch(epoch)
        store._core.compactor._work(store._core.working, major=True)
        store.snapshot_epoch(5)
        assert store.stats().sides[0].runs == 1
