"""Checkpoints of a join on Spark in a catalog: completed from what Spark tells, made from disk where it did not."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from lsmstate import CatalogError, EpochError, FencedError, LsmStateError
from lsmstate.checkpoint.catalog import Catalog
from lsmstate.checkpoint.manifest.lsm_files import check_lsm
from lsmstate.checkpoint.manifest.manifest import COMMITTED
from lsmstate.join.checkpoints import sources_of
from lsmstate.join.restore import restore
from tests.support.checkpoint_job import FILES, KAFKA, Driver, file_offset, kafka_offset


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


@pytest.fixture
def next_driver(tmp_path: Path) -> Callable[..., Driver]:
    return lambda run="run-2", **more: Driver(tmp_path, run, **more)


def test_job_is_registered_before_its_first_batch(driver: Driver) -> None:
    driver.checkpoints.register()
    with driver.catalog() as catalog:
        (job,) = catalog.jobs()
    assert (job.name, job.kind, job.latest_checkpoint_epoch, job.incarnation) == ("ads", "spark", 0, 0)
    assert (job.definition["state"], job.definition["partitions"]) == (str(driver.join.path), 3)


def test_checkpoint_tells_all_that_is_needed_to_go_back(driver: Driver) -> None:
    assert [driver.batch(epoch) for epoch in (1, 2)] == [[1], [2]]
    with driver.catalog() as catalog:
        job, rows = catalog.job("ads"), catalog.checkpoints("ads")
    assert job is not None
    assert (job.latest_checkpoint_epoch, job.incarnation, job.line) == (2, 1, 1)
    assert job.source_checkpoints == {KAFKA: {"offset": kafka_offset(2)}, FILES: {"offset": file_offset(2)}}
    manifest = driver.store.load(rows[-1].checkpoint_id)
    assert manifest is not None
    assert (manifest.epoch, manifest.incarnation, rows[-1].epoch, rows[-1].line) == (2, 1, 2, 1)
    assert sources_of(manifest) == {KAFKA: kafka_offset(2), FILES: file_offset(2)}
    assert manifest.sink_commit_statuses == {"FileSink[/out]": COMMITTED}
    assert manifest.sink_epochs == {"FileSink[/out]": 2}
    assert manifest.watermark == driver.join.barrier(2).watermark == rows[-1].watermark
    assert (manifest.pipeline_hash, manifest.is_incremental, manifest.parent_id) == (
        manifest.pipeline_hash,
        False,
        None,
    )
    assert manifest.size_bytes == sum(file.stat().st_size for file in driver.join.path.glob("p-*/sst/*"))
    assert list(manifest.operator_states) == ["p-00000", "p-00001", "p-00002"]
    parents = driver.join.barrier(3).parents
    for parent, state in zip(parents, manifest.operator_states.values(), strict=True):
        assert state.lsm is not None
        assert state.lsm.candidate == parent
        assert check_lsm(driver.join.home.fs, str(driver.join.path), state.lsm) == []
    assert Path(rows[-1].manifest).is_file()
    assert manifest.validate() == []


def test_checkpoints_come_by_their_interval_and_one_when_the_query_ends(tmp_path: Path) -> None:
    driver = Driver(tmp_path, interval_ms=3_600_000)
    assert [driver.batch(epoch) for epoch in (1, 2, 3)] == [[1], [], []]
    assert driver.checkpoints.catch_up(is_over=True) == [3]
    assert driver.checkpoints.catch_up(is_over=True) == []
    assert (driver.epochs(), driver.opened) == ([1, 3], 1)


def test_repeated_word_of_a_batch_changes_nothing(driver: Driver) -> None:
    driver.batch(1)
    driver.checkpoints.hear(driver.heard(1))
    assert driver.checkpoints.catch_up() == []
    assert driver.rows() == [(1, 1, "committed")]


def test_missing_checkpoints_are_made_from_disk_by_the_next_driver(
    driver: Driver, next_driver: Callable[..., Driver]
) -> None:
    driver.batch(1)
    for epoch in (2, 3):  # the driver dies before it hears of them
        driver.join.epoch(epoch)
    after = next_driver()
    assert after.batch(4) == [2, 3, 4]
    manifests = {listed.epoch: listed.manifest for listed in after.store.list()}
    assert all(manifest is not None and manifest.validate() == [] for manifest in manifests.values())
    told = {epoch: sources_of(manifest) for epoch, manifest in manifests.items() if manifest is not None}
    assert told[2] == {KAFKA: None, FILES: None}  # nobody knows
    assert told[3] == {KAFKA: kafka_offset(3), FILES: file_offset(3)}  # where batch 4 began
    assert told[4] == {KAFKA: kafka_offset(4), FILES: file_offset(4)}
    with after.catalog() as catalog:
        assert [row.note for row in catalog.checkpoints("ads")] == ["", "made from disk", "made from disk", ""]
        job = catalog.job("ads")
    assert job is not None
    assert job.incarnation == 2


def test_offsets_of_a_checkpoint_that_was_saved_and_not_committed_are_not_lost(
    driver: Driver, next_driver: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.batch(1)
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "commit_job_checkpoint", _dies)
        with pytest.raises(KeyboardInterrupt):
            driver.batch(2)
    driver.join.epoch(3)
    after = next_driver()
    assert after.batch(4) == [2, 3, 4]
    (two,) = (listed.manifest for listed in after.store.list() if listed.epoch == 2)
    assert two is not None
    assert sources_of(two) == {KAFKA: kafka_offset(2), FILES: file_offset(2)}


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_catalog_that_is_gone_for_a_while_is_caught_up_with_all_offsets(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.batch(1)
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "next_checkpoint_id", _down)
        for epoch in (2, 3):
            with pytest.raises(CatalogError):
                driver.batch(epoch)
            driver.checkpoints.lose_catalog()
    assert driver.batch(4) == [2, 3, 4]
    told = {listed.epoch: sources_of(listed.manifest) for listed in driver.store.list() if listed.manifest}
    assert told == {epoch: {KAFKA: kafka_offset(epoch), FILES: file_offset(epoch)} for epoch in (1, 2, 3, 4)}


def _down(*_: object) -> None:
    raise CatalogError("cannot be reached", "down")


def test_catalog_of_a_newer_schema_is_told_and_left_alone(driver: Driver) -> None:
    driver.batch(1)
    driver.checkpoints.lose_catalog()
    with sqlite3.connect(driver.url.removeprefix("sqlite:///")) as connection:
        connection.execute("update lsmstate_catalog set version = 99")
    connection.close()
    with pytest.raises(LsmStateError, match="newer"):
        driver.batch(2)
    assert driver.join.barrier(3).parent_epoch == 2


def test_driver_that_was_replaced_is_fenced_in_the_catalog_too(
    driver: Driver, next_driver: Callable[..., Driver]
) -> None:
    driver.batch(1)
    next_driver().batch(2)
    driver.checkpoints.hear(driver.heard(2))
    driver.join.epoch(3)
    driver.checkpoints.hear(driver.heard(3))
    with pytest.raises(FencedError):
        driver.checkpoints.catch_up()
    assert driver.epochs() == [1, 2]


def test_checkpoints_of_retired_epochs_are_forgotten(driver: Driver) -> None:
    for epoch in range(1, 8):
        driver.batch(epoch)
    assert driver.epochs() == [4, 5, 6, 7]
    assert [listed.epoch for listed in driver.store.list()] == [4, 5, 6, 7]


# ---- lines


def test_new_line_goes_on_in_the_catalog_and_what_came_after_is_left_behind(
    driver: Driver, next_driver: Callable[..., Driver]
) -> None:
    for epoch in range(1, 6):
        driver.batch(epoch)
    line = restore(driver.join.home, 3, "test")
    with driver.catalog() as catalog:
        catalog.rewind("ads", catalog.take("ads"), 3, line.number)
    after = next_driver(run="run-9", query="query-2")
    assert after.join.run.line.number == 2
    assert after.batch(4) == [4]
    assert after.rows() == [
        *((2, 1, "committed"), (3, 1, "committed"), (4, 1, "left_behind"), (5, 1, "left_behind"), (4, 2, "committed"))
    ]
    driver.checkpoints.hear(driver.heard(6))  # a late word of the old query
    assert driver.checkpoints.catch_up() == []
    for epoch in range(5, 10):
        after.batch(epoch)
    assert after.rows() == [(epoch, 2, "committed") for epoch in (6, 7, 8, 9)]


def test_restore_that_did_not_come_to_tell_the_catalog_is_told_by_the_next_driver(
    driver: Driver, next_driver: Callable[..., Driver]
) -> None:
    for epoch in range(1, 5):
        driver.batch(epoch)
    restore(driver.join.home, 3, "test")
    after = next_driver(run="run-9", query="query-2")
    assert after.batch(4) == [4]
    assert after.rows()[-2:] == [(4, 1, "left_behind"), (4, 2, "committed")]


def test_new_catalog_learns_of_a_state_on_a_later_line(driver: Driver, next_driver: Callable[..., Driver]) -> None:
    for epoch in range(1, 4):
        driver.batch(epoch)
    restore(driver.join.home, 2, "test")
    driver.checkpoints.lose_catalog()
    Path(driver.url.removeprefix("sqlite:///")).unlink()
    after = next_driver(run="run-9", query="query-2")
    assert after.batch(3) == [1, 2, 3]
    assert after.rows() == [(1, 2, "committed"), (2, 2, "committed"), (3, 2, "committed")]
    assert all(listed.problem is None for listed in after.store.list())


def test_older_copy_of_a_state_is_told(driver: Driver, next_driver: Callable[..., Driver]) -> None:
    driver.batch(1)
    driver.batch(2)
    with driver.catalog() as catalog:
        catalog.rewind("ads", catalog.take("ads"), 1, 5)
    after = next_driver()
    with pytest.raises(EpochError, match="the catalog knows line 5 of job 'ads': the state is an older copy"):
        after.batch(3)


# ---- jobs of the same name


def test_state_that_was_deleted_and_made_anew_is_another_job(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.batch(1)
    driver.batch(2)
    with driver.catalog() as catalog:
        before = catalog.job("ads")
    shutil.rmtree(driver.join.path)
    anew = Driver(tmp_path, "run-2")
    assert anew.batch(1) == [1]
    with driver.catalog() as catalog:
        after = catalog.job("ads")
    assert before is not None
    assert after is not None
    assert (before.job_id != after.job_id, anew.epochs()) == (True, [1])


def test_name_of_a_job_whose_state_is_still_there_is_not_taken(tmp_path: Path, driver: Driver) -> None:
    driver.batch(1)
    other = Driver(tmp_path / "other", "run-2")
    other.url = driver.url
    with pytest.raises(LsmStateError, match=r"knows job 'ads' with its state in .*Give another job="):
        other.batch(1)
    assert driver.batch(2) == [2]
