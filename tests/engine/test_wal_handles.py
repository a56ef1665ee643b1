"""Handles with and without a write-ahead log on one state: the last has it, and no acknowledged write is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lsmstate import FencedError, Options, StateStore
from tests.support.states import PATH, World, batch, rows_of, sides
from tests.support.wal_world import after_power_cut, row, wal


def test_handle_without_a_log_replays_what_one_with_a_log_has_left(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    plain = world.open()
    assert rows_of(plain.scan(0)) == [row(1)]
    plain.append(0, batch(row(2)))  # durable with its epoch, as it asked for
    assert rows_of(after_power_cut(world).scan(0)) == [row(1)]
    plain = world.open()
    plain.append(0, batch(row(3)))
    plain.snapshot_epoch(1)
    plain.append(0, batch(row(4)))
    again = after_power_cut(world)
    assert rows_of(again.scan(0)) == [row(1), row(3)]
    again.append(0, batch(row(5)))
    assert rows_of(after_power_cut(world).scan(0)) == [row(1), row(3), row(5)]


def test_state_of_epochs_gets_a_log_and_keeps_its_epochs(world: World) -> None:
    plain = world.open()
    plain.append(0, batch(row(1)))
    plain.snapshot_epoch(1)
    assert "wal" not in world.fs.list_dir(PATH)
    store = wal(world)
    store.append(0, batch(row(2)))
    assert rows_of(after_power_cut(world).scan(0)) == [row(1), row(2)]
    with pytest.raises(FencedError):
        plain.snapshot_epoch(2)


def test_read_only_handle_shows_the_newest_epoch_and_no_record(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    reader = world.open(read_only=True)
    assert rows_of(reader.scan(0)) == [row(1)]
    assert reader.verify() == []
    store.append(0, batch(row(3)))  # a reader fences nobody


def test_handle_at_a_candidate_takes_no_log(world: World) -> None:
    with pytest.raises(ValueError, match="wal"):
        StateStore.open_candidate(PATH, None, sides(), Options(durability="wal"), fs=world.fs.spawn(), pool=world.pool)
    with pytest.raises(ValueError, match="durability"):
        Options(durability="always")  # type: ignore[arg-type]


OTHERS: dict[str, Callable[[World], StateStore]] = {"wal": wal, "epoch": lambda world: world.open()}


@pytest.mark.parametrize("kind", OTHERS)
def test_opening_to_write_ends_the_writer_before_and_has_all_that_it_acknowledged(world: World, kind: str) -> None:
    zombie = wal(world)
    zombie.append(0, batch(row(1)))
    other = OTHERS[kind](world)
    acts = (lambda: zombie.append(0, batch(row(9))), lambda: zombie.advance_watermark(1), lambda: zombie.prepare(7))
    for act in acts:
        with pytest.raises(FencedError, match="reopen"):
            act()
    assert rows_of(other.scan(0)) == [row(1)]
    other.append(0, batch(row(2)))
    other.snapshot_epoch(1)
    assert rows_of(after_power_cut(world).scan(0)) == [row(1), row(2)]


PUBLISHES: dict[str, Callable[[StateStore], None]] = {
    "commit": lambda store: store.commit(2),
    "restore": lambda store: store.restore(1),
}


@pytest.mark.parametrize("publish", PUBLISHES)
@pytest.mark.parametrize("durability", ["epoch", "wal"])
def test_older_handle_cannot_publish_over_what_another_has_acknowledged(
    world: World, publish: str, durability: str
) -> None:
    zombie = world.open(durability=durability)
    zombie.append(0, batch(row(1)))
    zombie.snapshot_epoch(1)
    zombie.append(0, batch(row(8)))
    zombie.prepare(2)
    other = wal(world)
    seen = rows_of(other.scan(0))
    other.append(0, batch(row(2)))
    with pytest.raises(FencedError):
        PUBLISHES[publish](zombie)
    assert rows_of(after_power_cut(world).scan(0)) == sorted([*seen, row(2)])


def test_newer_handle_whose_elder_publishes_first_is_fenced_before_it_acknowledges(world: World) -> None:
    elder = wal(world)
    elder.append(0, batch(row(1)))
    elder.prepare(1)
    other = wal(world)
    elder.commit(1)
    with pytest.raises(FencedError):
        other.append(0, batch(row(2)))
    assert rows_of(after_power_cut(world).scan(0)) == [row(1)]
