"""`durability="wal"`: what was acknowledged is there when the state is opened again, on top of the newest epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from lsmstate import CorruptionError, EpochError, FencedError, Options, StateStore, StorePoisonedError
from lsmstate.engine.wal import WriteAheadLog
from tests.support.crash_check import unsynced_lost
from tests.support.simfs import SimFileSystem
from tests.support.states import PATH, World, batch, rows_of, sides


@pytest.fixture
def world() -> Iterator[World]:
    with World(sides(2, retention=1000)) as world:
        yield world


def row(n: int) -> tuple[int, int, str]:
    return (n, n, f"value {n}")


def wal(world: World, **options: Any) -> StateStore:
    return world.open(durability="wal", **options)


def after_power_cut(world: World, **options: Any) -> StateStore:
    """A new handle on the disk that a power cut leaves now."""
    world.fs = unsynced_lost(world.fs)
    return wal(world, **options)


def test_acknowledged_writes_are_there_without_any_epoch(world: World) -> None:
    store = wal(world)
    assert store.append(0, batch(row(1), row(2))) == 1
    assert store.append(1, batch((3, 3, None))) == 3
    store.remove(0, 1, 2)
    store.advance_watermark(7)
    again = after_power_cut(world)
    assert rows_of(again.scan(0)) == [row(2)]
    assert rows_of(again.scan(1)) == [(3, 3, None)]
    assert (again.watermark, again.next_id, again.epochs()) == (7, 5, [])


def test_rows_get_the_ids_again_that_they_had(world: World) -> None:
    store = wal(world)
    given = [store.append(n % 2, batch(*(row(10 * n + i) for i in range(n)))) for n in range(1, 5)]
    ids = [part.column("__row_id").to_pylist() for part in store.view().scan(0, row_ids=True)]
    again = after_power_cut(world)
    assert [part.column("__row_id").to_pylist() for part in again.view().scan(0, row_ids=True)] == ids
    assert again.append(0, batch(row(99))) == given[-1] + 4


def test_what_prepare_wrote_is_not_replayed_and_what_came_after_is(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.prepare(1)
    store.append(0, batch(row(2)))
    store.commit(1)
    store.append(0, batch(row(3)))
    again = after_power_cut(world)
    assert rows_of(again.scan(0)) == [row(1), row(2), row(3)]
    assert again.stats().memtable_rows == 2
    with again.at_epoch(1) as view:
        assert rows_of(view.scan(0)) == [row(1)]


def test_prepared_epoch_of_a_dead_handle_is_committed_as_it_was_prepared(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.prepare(1)
    store.append(0, batch(row(2)))
    again = after_power_cut(world)
    again.commit(1)
    assert rows_of(again.scan(0)) == [row(1), row(2)]
    last = after_power_cut(world)
    with last.at_epoch(1) as view:
        assert rows_of(view.scan(0)) == [row(1)]
    assert rows_of(last.scan(0)) == [row(1), row(2)]


def test_prepared_epoch_cannot_be_committed_once_another_handle_has_written(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    name = store.prepare(1)
    again = wal(world)
    again.append(0, batch(row(2)))
    with pytest.raises(EpochError):
        again.commit(1, candidate=name)
    with pytest.raises(FencedError):
        store.commit(1)
    assert rows_of(after_power_cut(world).scan(0)) == [row(1), row(2)]


def test_commit_can_be_repeated_by_every_handle_that_comes(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    name = store.prepare(1)
    store.commit(1)
    for n in range(2, 5):
        store = wal(world)
        store.commit(1, candidate=name)
        store.append(0, batch(row(n)))
        store.commit(1, candidate=name)
    with pytest.raises(EpochError):
        store.commit(1, candidate=name.replace("000000000001", "000000000007"))


def test_aborted_epoch_loses_no_rows(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.prepare(1)
    store.append(0, batch(row(2)))
    store.abort(1)
    again = after_power_cut(world)
    assert rows_of(again.scan(0)) == [row(1), row(2)]
    again.snapshot_epoch(1)
    assert again.stats().log_bytes == 0


def test_restore_discards_what_was_logged_and_goes_on(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    store.snapshot_epoch(2)
    store.append(0, batch(row(3)))
    position = store.wal_position
    store.restore(1)
    assert rows_of(after_power_cut(world).scan(0)) == [row(1)]
    store = wal(world)
    store.append(0, batch(row(4)))
    assert store.wal_position > position
    assert rows_of(after_power_cut(world).scan(0)) == [row(1), row(4)]


def test_branch_begins_with_its_epoch_and_no_record(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    store.branch(1, "/branch")
    for durability in ("epoch", "wal", "epoch"):
        branch = world.open(path="/branch", durability=durability)
        assert rows_of(branch.scan(0)) == [row(1)]
    assert rows_of(wal(world).scan(0)) == [row(1), row(2)]


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


def test_log_is_removed_once_an_epoch_holds_it_and_never_before(world: World) -> None:
    store = wal(world, retain=2)
    sizes = []
    for epoch in range(1, 6):
        store.append(0, batch(*(row(epoch * 10 + n) for n in range(5))))
        assert store.stats().log_bytes > 0
        store.prepare(epoch)
        kept = world.files("wal")
        store.commit(epoch)
        assert world.files("wal") < kept
        assert store.stats().log_bytes == 0
        sizes.append(len(world.files("wal")))
    assert sizes == [1] * 5
    assert store.stats().collection_error is None


def test_position_only_grows_and_counts_what_is_durable(world: World) -> None:
    seen = [0]
    for turn in range(3):
        store = wal(world)
        assert store.wal_position >= seen[-1]
        store.append(0, batch(row(turn)))
        seen.append(store.wal_position)
        store.snapshot_epoch(turn + 1)
        assert store.wal_position == seen[-1]
        store.restore(turn + 1)
        store.append(1, batch(row(turn)))
        seen.append(store.wal_position)
    assert seen == sorted(set(seen))
    assert world.open(read_only=True).wal_position == 0


def test_spilled_rows_come_once(world: World) -> None:
    store = wal(world, memtable_bytes=1)
    for n in range(8):
        store.append(n % 2, batch(row(n)))
    again = after_power_cut(world, memtable_bytes=1)
    assert rows_of(again.scan(0)) == [row(n) for n in (0, 2, 4, 6)]
    again.snapshot_epoch(1)
    assert rows_of(after_power_cut(world).scan(1)) == [row(n) for n in (1, 3, 5, 7)]
    assert again.verify() == []


def test_batches_in_many_forms_come_back_as_they_were(world: World) -> None:
    store = wal(world)
    whole = batch(*(row(n) for n in range(20)))
    store.append(0, whole.slice(3, 5))
    store.append(0, pa.Table.from_batches([whole.slice(10, 2), whole.slice(15, 3)]))
    store.append(0, whole.slice(0, 0))
    store.append(0, whole.select(["v", "k", "ts"]).slice(19, 1))
    expected = rows_of(store.scan(0))
    assert rows_of(after_power_cut(world).scan(0)) == expected
    assert len(expected) == 11


def test_closed_store_is_there_when_it_is_opened_again(world: World) -> None:
    for n in range(4):
        with wal(world) as store:
            assert rows_of(store.scan(0)) == [row(m) for m in range(n)]
            store.append(0, batch(row(n)))


def test_writers_in_threads_all_find_their_rows(world: World) -> None:
    store = wal(world)
    errors: list[Exception] = []

    def write(n: int) -> None:
        try:
            for m in range(8):
                store.append(n % 2, batch((n, m, f"{n} {m}")))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for epoch in range(1, 4):
        store.snapshot_epoch(epoch)
    for thread in threads:
        thread.join()
    assert errors == []
    again = after_power_cut(world)
    for side in (0, 1):
        expected = sorted((n, m, f"{n} {m}") for n in range(side, 6, 2) for m in range(8))
        assert sorted(rows_of(again.scan(side))) == expected
    assert again.verify() == []


def test_write_lock_is_not_held_during_the_fsync(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = wal(world)
    free: list[bool] = []
    sync, lock = WriteAheadLog.sync, store._core.write_lock

    def look() -> None:
        free.append(lock.acquire(timeout=10))
        if free[-1]:
            lock.release()

    def watched(log: WriteAheadLog, position: int) -> None:
        other = threading.Thread(target=look)
        other.start()
        other.join()
        sync(log, position)

    store.append(0, batch(row(1)))
    monkeypatch.setattr(WriteAheadLog, "sync", watched)
    store.append(0, batch(row(2)))
    assert free == [True]


# ---- damage


def damaged(world: World, change: Callable[[bytes], bytes | None]) -> SimFileSystem:
    tree = dict(world.fs.tree())
    for path in [path for path, data in tree.items() if "/wal/" in path and data]:
        found = change(tree[path] or b"")
        if found is None:
            del tree[path]
        else:
            tree[path] = found
    return SimFileSystem.of(tree)


def test_lost_log_is_refused_and_never_taken_for_an_empty_one(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    world.fs = damaged(world, lambda data: None)
    for durability in ("epoch", "wal"):
        with pytest.raises(CorruptionError):
            world.open(durability=durability)
    reader = world.open(read_only=True)
    assert rows_of(reader.scan(0)) == [row(1)]
    assert any("/wal/" in problem.path for problem in reader.verify())


def test_every_flipped_byte_of_a_closed_log_is_refused_or_harmless(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    store.remove(0, 1, 2)
    store.close()
    tree = world.fs.tree()
    (path,) = (path for path, data in tree.items() if "/wal/" in path and data)
    data, outcomes = tree[path] or b"", {"refused": 0, "right": 0}
    for at in range(0, len(data), 3):
        world.fs = SimFileSystem.of({**tree, path: data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]})
        try:
            found = wal(world)
        except CorruptionError:
            outcomes["refused"] += 1
            continue
        assert rows_of(found.scan(0)) == [row(2)]
        outcomes["right"] += 1
    assert outcomes["refused"] > 100
    assert outcomes["right"] < 40  # what the log says of its end, and a byte or two that nobody needs


def test_failed_log_says_so_and_reading_goes_on(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    assert store._core.wal is not None
    store._core.wal.fail(OSError(5, "gone"))
    with pytest.raises(StorePoisonedError, match="reopen"):
        store.append(0, batch(row(2)))
    assert rows_of(store.scan(0)) == [row(1)]
