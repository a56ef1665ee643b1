"""`lsmstate.read_state`: the rows of a join after an epoch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from lsmstate import CorruptionError, EpochError, LsmStateError, NotAStateError, SnapshotExpired, StateStore, read_state
from lsmstate.join import reading
from lsmstate.join.reading import EpochState, state_at
from tests.support.cli_state import damage
from tests.support.join_home import ROWS, SECOND_US, START_US, JoinHome, join_spec

LAST = 5  # with three epochs retained: 3 to 5 can be read


@pytest.fixture
def join(tmp_path: Path) -> JoinHome:
    return JoinHome(tmp_path / "home").epochs(LAST)


def keys(table: pa.Table) -> list[int]:
    found: list[int] = sorted(table.column(0).to_pylist())
    return found


def expected(last: int) -> list[int]:
    """The left keys of epochs up to this one: none is retired yet."""
    return [epoch * 1000 + n for epoch in range(1, last + 1) for n in range(ROWS)]


def test_newest_epoch_is_read_unless_told(join: JoinHome) -> None:
    table = read_state(join.path)
    assert table.schema.equals(join.spec.sides[0].schema)
    assert keys(table) == expected(LAST)
    assert table.to_pylist()[0].keys() == {"ad_id", "ts", "title"}


def test_right_side_shows_only_what_the_watermark_has_left(join: JoinHome) -> None:
    table = read_state(str(join.path), side="right")
    assert table.schema.equals(join.spec.sides[1].schema)
    cut = START_US + 241_900_000 - 5 * SECOND_US
    times = table.column("at").cast(pa.int64()).to_pylist()
    assert min(times) > cut
    assert len(times) == ROWS * 2 - sum(START_US + 240 * SECOND_US + n * 100_000 <= cut for n in range(ROWS))


@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_older_epoch_is_read_as_it_was(join: JoinHome, epoch: int) -> None:
    assert keys(read_state(join.path, epoch=epoch)) == expected(epoch)


@pytest.mark.parametrize("epoch", [0, 1, 2, 6, -1])
def test_epoch_that_is_retired_or_never_was_is_refused_with_those_that_can_be_read(join: JoinHome, epoch: int) -> None:
    with pytest.raises(EpochError, match=rf"epoch {epoch} does not exist, or was retired; .* are: 3, 4, 5"):
        read_state(join.path, epoch=epoch)


@pytest.mark.parametrize("side", ["LEFT", "", "0", 0, None])
def test_wrong_side_is_misuse(join: JoinHome, side: object) -> None:
    with pytest.raises(ValueError, match="side must be one of left, right, left_late, right_late"):
        read_state(join.path, side=side)  # type: ignore[arg-type]


def test_what_is_no_state_of_a_join_is_refused(join: JoinHome, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    StateStore.open(tmp_path / "plain", [join.spec.sides[0]]).close()
    for path in (tmp_path / "empty", tmp_path / "nothing", tmp_path / "file", tmp_path / "plain", join.partition(0)):
        with pytest.raises(NotAStateError, match=str(path)):
            read_state(path)
    assert not (tmp_path / "nothing").exists()


def test_epoch_under_way_is_not_read(join: JoinHome) -> None:
    join.epoch(6, partitions=[0, 1])
    assert keys(read_state(join.path)) == expected(LAST)
    with pytest.raises(EpochError, match="epoch 6 is not complete; those that can be read are: 4, 5"):
        read_state(join.path, epoch=6)
    join.epoch(6, partitions=[2])
    assert keys(read_state(join.path)) == expected(6)


def test_epoch_that_is_being_retired_is_not_read_though_its_barrier_is_there(join: JoinHome) -> None:
    join.epoch(6, partitions=[1, 2])  # they have retired epoch 3; partition 0, which removes barriers, has not
    assert join.barrier_file(3).exists()
    with pytest.raises(EpochError, match="was retired"):
        read_state(join.path, epoch=3)


def test_join_without_a_complete_epoch_has_nothing_to_read(tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home")
    for _ in range(2):
        with pytest.raises(EpochError, match="no epoch is complete yet"):
            read_state(join.path)
        join.epoch(1, partitions=[0])


def test_candidate_that_counts_is_the_one_that_the_next_epoch_builds_on(tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home")
    join.epoch(1)
    join.epoch(2)
    chosen = join.barrier(2).parents
    join.epoch(1, partitions=[0, 1, 2])  # tasks that come too late
    assert state_at(join.home.fs, str(join.path), 1).candidates == chosen


def test_reading_changes_nothing(join: JoinHome) -> None:
    before = {path: path.stat().st_mtime_ns for path in join.path.rglob("*") if path.is_file()}
    read_state(join.path)
    assert {path: path.stat().st_mtime_ns for path in join.path.rglob("*") if path.is_file()} == before


def test_missing_partition_is_not_made_anew(join: JoinHome) -> None:
    shutil.rmtree(join.partition(1))
    with pytest.raises(LsmStateError, match="p-00001: there is no state, though"):
        read_state(join.path, epoch=4)
    assert not join.partition(1).exists()


def test_damage_is_not_read_around(join: JoinHome) -> None:
    damage(join.sstable(1, 4), -1)
    with pytest.raises(CorruptionError, match=join.sstable(1, 4).name):
        read_state(join.path)
    assert keys(read_state(join.path, epoch=3)) == expected(3)


def test_damaged_barrier_harms_no_other_epoch(join: JoinHome) -> None:
    damage(join.barrier_file(4), 200)
    assert keys(read_state(join.path)) == expected(5)
    assert keys(read_state(join.path, epoch=3)) == expected(3)
    with pytest.raises(CorruptionError, match="barriers"):
        read_state(join.path, epoch=4)


@pytest.mark.parametrize("epoch", [None, LAST])
def test_query_that_goes_on_while_partitions_are_opened_is_followed(
    join: JoinHome, monkeypatch: pytest.MonkeyPatch, epoch: int | None
) -> None:
    real, overtaken = EpochState.partition, []

    @contextmanager
    def partition(state: EpochState, number: int) -> Iterator[StateStore]:
        if number == 1 and not overtaken:
            overtaken.append(state.epoch)
            for later in range(6, 10):
                join.epoch(later)
        with real(state, number) as store:
            yield store

    monkeypatch.setattr(reading.EpochState, "partition", partition)
    if epoch is None:
        assert keys(read_state(join.path)) == expected(9)
    else:
        with pytest.raises(SnapshotExpired, match="retired"):
            read_state(join.path, epoch=epoch)
    assert overtaken == [LAST]


def test_view_of_an_epoch_outlives_its_retirement(join: JoinHome) -> None:
    found = state_at(join.home.fs, str(join.path), None)
    with found.partition(0) as store, store.snapshot() as view:
        for epoch in range(6, 12):
            join.epoch(epoch)
        assert sum(batch.num_rows for batch in view.scan(0)) < ROWS * LAST
        assert store.verify() == []


def test_one_partition_is_enough(tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home", join_spec(str(tmp_path / "home"), partitions=1)).epochs(2)
    assert keys(read_state(join.path)) == expected(2)
