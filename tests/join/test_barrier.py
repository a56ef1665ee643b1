"""The barrier of an epoch: decided once, by the first task, from what is on disk; all others obey."""

from __future__ import annotations

import threading
from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pytest

from lsmstate import CorruptionError, EpochError, LsmStateError, StateStore
from lsmstate.join.barrier import Barrier, barrier_of, epochs_begun, read_barrier
from lsmstate.join.candidates import candidates_of
from lsmstate.join.home import Home
from lsmstate.join.pace import Pace
from lsmstate.join.runs import enter_run
from tests.support.join_home import DELAY_US, QUERY, SECOND_US, JoinHome, join_spec
from tests.support.simfs import SimFileSystem

PATH = "/state/home"


@pytest.fixture
def join() -> JoinHome:
    return JoinHome(PATH, fs=SimFileSystem())


def damage(join: JoinHome, path: str) -> None:
    """Flips a byte of a file."""
    fs = join.home.fs
    data = bytearray(fs.read(path, 1 << 20))
    data[len(data) // 2] ^= 0xFF
    fs.unlink(path)
    file = fs.create(path)
    file.write([bytes(data)])
    file.close()


def manifests(join: JoinHome, partition: int) -> list[str]:
    return sorted(join.home.fs.list_dir(f"{join.home.partition(partition)}/manifest"))


def at(join: JoinHome, second: int, side: int = 0) -> pa.RecordBatch:
    """Enough rows for every partition, all at one time."""
    names = join.spec.sides[side].schema.names
    columns = {names[0]: list(range(40)), names[1]: [second * SECOND_US] * 40, names[2]: [None] * 40}
    return pa.RecordBatch.from_pydict(columns, schema=join.spec.sides[side].schema)


def finish(join: JoinHome, epoch: int, left_s: int | None = None, right_s: int | None = None) -> None:
    """An epoch with rows of these times."""
    times = enumerate((left_s, right_s))
    rows = [join.rows(side, epoch, 0) if second is None else at(join, second, side) for side, second in times]
    for partition in range(join.spec.partitions):
        join.task(epoch, partition, *rows)


# ---- deciding


def test_first_barrier_has_no_parent_and_no_watermark(join: JoinHome) -> None:
    barrier = join.barrier(1)
    assert (barrier.epoch, barrier.min_epoch, barrier.parent_epoch, barrier.parents) == (1, 1, None, ())
    assert (barrier.watermark, barrier.late_watermark, barrier.run) == (None, None, join.run.number)
    assert barrier.parent(0) is None
    assert epochs_begun(join.home) == [1]


def test_first_barrier_of_a_later_epoch_is_refused(join: JoinHome) -> None:
    with pytest.raises(LsmStateError, match="at batch 6, and the barriers of all batches before it are gone"):
        join.barrier(7)
    assert epochs_begun(join.home) == []


def test_parent_is_a_complete_candidate_of_the_epoch_before_in_every_partition(join: JoinHome) -> None:
    names = join.epoch(1)
    barrier = join.barrier(2)
    assert (barrier.parent_epoch, list(barrier.parents)) == (1, names)
    assert [barrier.parent(partition) for partition in range(3)] == names


def test_one_of_several_candidates_is_chosen_and_the_choice_stays(join: JoinHome) -> None:
    first = join.epoch(1)
    again = join.epoch(1, partitions=[1])[0]
    barrier = join.barrier(2)
    assert barrier.parents == (first[0], min(first[1], again), first[2])
    join.epoch(1, partitions=[0, 1, 2])  # tasks that come too late
    assert join.barrier(2) == barrier


def test_epoch_that_was_never_evaluated_is_not_passed_over(join: JoinHome) -> None:
    join.epochs(2)
    with pytest.raises(EpochError, match=r"batch 2 was never evaluated.* this is batch 4.* foreachBatch"):
        join.barrier(5)
    assert epochs_begun(join.home) == [1, 2]
    assert join.barrier(3).parent_epoch == 2


def test_barrier_of_a_task_that_died_is_durable_before_it_is_obeyed(join: JoinHome) -> None:
    """The first task dies right after it has linked the barrier: nobody has made its name durable yet."""
    disk = join.home.fs
    with (
        mock.patch.object(type(disk), "sync_dir", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        join.barrier(1)
    assert epochs_begun(join.home) == [1]
    with mock.patch.object(type(disk), "sync_dir", autospec=True, side_effect=type(disk).sync_dir) as synced:
        join.barrier(1)
    assert f"{join.home.path}/barriers" in [call.args[1] for call in synced.call_args_list]


def test_tasks_that_race_get_the_same_barrier(join: JoinHome) -> None:
    join.epoch(1)
    for _ in range(3):
        join.epoch(1, partitions=[0, 2])
    start = threading.Barrier(8)
    found: list[Barrier] = []

    def task(number: int) -> None:
        mine = Home(join.home.fs, PATH)
        start.wait()
        found.append(barrier_of(mine, replace(join.spec, retain=2 + number), 2, join.run))

    threads = [threading.Thread(target=task, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {read_barrier(join.home, 2)}
    assert join.home.listed("drafts") == []


# ---- what it cannot build on


def test_partitions_that_have_not_finished_are_named(join: JoinHome) -> None:
    join.epoch(1, partitions=[1])
    with pytest.raises(EpochError, match=r"epoch 1 \(batch 0\) is not complete: partitions \[0, 2\]") as error:
        join.barrier(2)
    assert "limit" in str(error.value)
    assert epochs_begun(join.home) == [1]


def test_damaged_candidate_is_named(join: JoinHome) -> None:
    join.epoch(1)
    path = f"{join.home.partition(1)}/manifest/{manifests(join, 1)[0]}"
    damage(join, path)
    with pytest.raises(EpochError, match=r"partitions \[1\].*damaged manifests: ") as error:
        join.barrier(2)
    assert path in str(error.value)


def test_damaged_candidate_is_passed_over_where_there_is_a_good_one(join: JoinHome) -> None:
    join.epoch(1)
    damage(join, f"{join.home.partition(1)}/manifest/{manifests(join, 1)[0]}")
    good = join.epoch(1, partitions=[1])[0]
    assert join.barrier(2).parents[1] == good


@pytest.mark.parametrize("meta", [{}, {"max_ts": [1]}, {"max_ts": ["1", None]}, {"max_ts": {"0": 1, "1": 1}}])
def test_candidate_without_the_newest_times_does_not_count(join: JoinHome, meta: dict[str, object]) -> None:
    join.epoch(1, partitions=[0, 2])
    with StateStore.open_candidate(join.home.partition(1), None, join.spec.sides, fs=join.home.fs) as store:
        store.prepare(1, meta=meta)
    assert [len(found) for found in candidates_of(join.home, 1, 1)] == [0, 1]
    with pytest.raises(EpochError, match=r"partitions \[1\]"):
        join.barrier(2)


def test_damaged_barrier_is_never_decided_anew(join: JoinHome) -> None:
    join.epoch(1)
    join.barrier(2)
    damage(join, f"{PATH}/barriers/000001-{2:012d}")
    for epoch in (2, 3):
        with pytest.raises((CorruptionError, EpochError)):
            join.barrier(epoch)
    assert epochs_begun(join.home) == [1, 2]


def test_names_that_only_look_like_barriers_are_left_alone(join: JoinHome) -> None:
    join.epoch(1)
    for name in ("notes", "000002-000000000009", "\u0660\u0660\u0660\u0660\u0660\u0661-000000000009", "000001-9"):
        join.home.fs.create(f"{PATH}/barriers/{name}").close()
    assert epochs_begun(join.home) == [1]


def test_checkpoint_that_is_older_than_the_state_is_refused(join: JoinHome) -> None:
    join.epochs(3)
    with pytest.raises(LsmStateError, match="the checkpoint is older than the state"):
        barrier_of(join.home, join.spec, 2, enter_run(join.home, QUERY, "run-2", 1))
    assert (
        barrier_of(join.home, join.spec, 3, replace(join.run, number=2)).epoch == 3
    )  # Spark runs its last batch again


# ---- the watermark


def test_watermark_is_the_least_of_the_sides(join: JoinHome) -> None:
    finish(join, 1, left_s=100, right_s=70)
    barrier = join.barrier(2)
    assert (barrier.late_watermark, barrier.watermark) == (None, 70 * SECOND_US - DELAY_US)
    finish(join, 2, right_s=200)
    barrier = join.barrier(3)
    assert (barrier.late_watermark, barrier.watermark) == (60 * SECOND_US, 90 * SECOND_US)


def test_watermark_never_goes_back(join: JoinHome) -> None:
    finish(join, 1, left_s=100, right_s=100)
    finish(join, 2, left_s=20, right_s=20)
    assert join.barrier(3).watermark == 90 * SECOND_US
    join.spec = replace(join.spec, pace=Pace((60 * SECOND_US, 60 * SECOND_US)))  # a run that waits longer
    finish(join, 3, left_s=101, right_s=101)
    barrier = join.barrier(4)
    assert (barrier.late_watermark, barrier.watermark) == (90 * SECOND_US, 90 * SECOND_US)


def test_watermark_waits_for_a_silent_side(join: JoinHome) -> None:
    finish(join, 1, left_s=100)
    finish(join, 2, left_s=500)
    assert join.barrier(3).watermark is None
    finish(join, 3, right_s=50)
    assert join.barrier(4).watermark == 40 * SECOND_US


def test_watermark_is_in_whole_milliseconds_as_spark_counts(join: JoinHome) -> None:
    join.spec = replace(join.spec, pace=Pace((1_500, 0)))
    names = join.spec.sides[0].schema.names
    left = at(join, 0).set_column(1, names[1], pa.array([1_234_567] * 40).cast(join.spec.sides[0].schema.field(1).type))
    for partition in range(3):
        join.task(1, partition, left, at(join, 9, side=1))
    assert join.barrier(2).watermark == 1_233_000


# ---- retirement


def test_history_is_kept_from_min_epoch_on(join: JoinHome) -> None:
    join.epochs(5)
    assert [barrier.min_epoch for e in (3, 4, 5) if (barrier := read_barrier(join.home, e))] == [1, 2, 3]
    assert epochs_begun(join.home) == [3, 4, 5]
    for partition in range(3):
        kept = {int(name[:12]) for name in manifests(join, partition)}
        assert kept == {1, 3, 4, 5}  # the first is the whole one that the others lean on


def test_what_is_retired_stays_so_though_more_be_kept_from_now_on(join: JoinHome) -> None:
    join.epochs(3)
    rows = [join.rows(side, 4) for side in (0, 1)]
    for partition in (1, 2, 0):  # the task of partition 0 dies before it removes barriers
        join.task(4, partition, *rows, retire=partition != 0)
    assert epochs_begun(join.home) == [1, 2, 3, 4]
    join.spec = replace(join.spec, retain=100)
    assert join.barrier(5).min_epoch == 2


def test_partition_that_is_gone_is_not_started_anew_empty(join: JoinHome) -> None:
    join.epoch(1)
    join.barrier(2)
    other = JoinHome("/other", join_spec("/other"), fs=join.home.fs)
    other.barrier(1)
    with pytest.raises(LsmStateError, match="there is no state, though"):
        StateStore.open_candidate(other.home.partition(0), join.barrier(2).parents[0], join.spec.sides, fs=join.home.fs)
    assert join.home.fs.kind(other.home.partition(0)) is None


def test_candidate_of_the_newest_run_counts(join: JoinHome) -> None:
    join.epochs(2)
    before, join.run = join.run, enter_run(join.home, QUERY, "another run", 1)
    repeated = join.epoch(2)
    now, join.run = join.run, before
    zombies = [join.epoch(2) for _ in range(3)]  # of the run that was replaced, coming late
    join.run = now
    assert join.barrier(3).parents == tuple(repeated)
    assert all(set(zombie).isdisjoint(repeated) for zombie in zombies)


def test_epoch_whose_barrier_is_lost_is_not_built_around(join: JoinHome) -> None:
    join.epochs(2)
    join.home.fs.unlink(f"{PATH}/barriers/000001-000000000002")
    with pytest.raises(EpochError, match="the barrier of epoch 2 is gone, though partition 0 has worked on it"):
        join.barrier(3)
