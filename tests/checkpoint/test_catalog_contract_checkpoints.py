"""What a catalog promises about checkpoints, on SQLite and on a real PostgreSQL server alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lsmstate import EpochError
from lsmstate.checkpoint.catalog import Catalog, CheckpointRow, JobRow
from tests.support.catalog_cases import ORDERS, commit

# ---- commits


def test_checkpoint_epoch_and_offsets_are_committed_together(catalog: Catalog, job: JobRow, catalog_url: str) -> None:
    mine = catalog.take("job")
    row = CheckpointRow(
        catalog.next_checkpoint_id("job", mine), 4, 1, 1_700_000_000_123, 2**40, -5, True, "checkpoints/1", note="first"
    )
    catalog.commit_job_checkpoint("job", mine, row, ORDERS)
    with Catalog.open(catalog_url) as again:
        told = again.job("job")
        assert told is not None
        assert (told.latest_checkpoint_epoch, told.latest_checkpoint_id, told.source_checkpoints) == (4, 1, ORDERS)
        assert again.checkpoints("job") == [row]
        assert again.source_checkpoints("job") == ORDERS


def test_commit_goes_forward_only(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    commit(catalog, mine, 5)
    for epoch in (5, 4, 1):
        with pytest.raises(EpochError, match="does not go forward: epoch 5 is committed"):
            commit(catalog, mine, epoch)
    commit(catalog, mine, 6)
    assert catalog.source_checkpoints("job") == {"orders": {"0": "6"}}


def test_commit_repeated_with_the_same_changes_nothing(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    rows = [commit(catalog, mine, epoch) for epoch in (1, 2)]
    for row in rows:  # also an older one: an answer may have been lost long ago
        catalog.commit_job_checkpoint("job", mine, row, {"orders": {"0": str(row.epoch)}})
    assert catalog.checkpoints("job") == rows
    assert catalog.source_checkpoints("job") == {"orders": {"0": "2"}}


def test_commit_repeated_with_something_else_is_refused(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    row = commit(catalog, mine, 1)
    offsets = {"orders": {"0": "1"}}
    for other, told in (
        (replace(row, epoch=2), offsets),
        (replace(row, size_bytes=1), offsets),
        (row, {"orders": {"0": "2"}}),
        (row, {}),
    ):
        with pytest.raises(EpochError, match="was committed before"):
            catalog.commit_job_checkpoint("job", mine, other, told)
    assert catalog.checkpoints("job") == [row]
    assert catalog.source_checkpoints("job") == offsets


def test_id_that_was_never_given_out_is_refused(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    with pytest.raises(EpochError, match="never given out, the last was 0"):
        catalog.commit_job_checkpoint("job", mine, CheckpointRow(1, 1), {})


def test_id_older_than_the_committed_one_is_refused(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    late = catalog.next_checkpoint_id("job", mine)
    commit(catalog, mine, 1)
    with pytest.raises(EpochError, match="is older than checkpoint 2"):
        catalog.commit_job_checkpoint("job", mine, CheckpointRow(late, 2), {})


def test_attempt_of_the_driver_before_can_be_rolled_forward_by_the_next(catalog: Catalog, job: JobRow) -> None:
    saved = catalog.next_checkpoint_id("job", catalog.take("job"))
    mine = catalog.take("job")
    catalog.commit_job_checkpoint("job", mine, CheckpointRow(saved, 1), ORDERS)
    assert catalog.source_checkpoints("job") == ORDERS


def test_source_that_is_gone_is_not_kept_from_the_checkpoint_before(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    for epoch, offsets in ((1, ORDERS), (2, {"orders": {}}), (3, {})):
        row = CheckpointRow(catalog.next_checkpoint_id("job", mine), epoch)
        catalog.commit_job_checkpoint("job", mine, row, offsets)
        assert catalog.source_checkpoints("job") == offsets
    assert catalog.source_checkpoints("job", 1) == ORDERS
    with pytest.raises(EpochError, match="there is no checkpoint 9"):
        catalog.source_checkpoints("job", 9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"checkpoint_id": 0},
        {"epoch": 0},
        {"epoch": True},
        {"line": 0},
        {"size_bytes": -1},
        {"timestamp_ms": 1.5},
        {"watermark": "x"},
        {"epoch": 2**63},
        {"status": "pending"},
        {"note": None},
    ],
)
def test_checkpoint_with_a_wrong_field_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=rf"CheckpointRow.{next(iter(wrong))} must be"):
        CheckpointRow(**({"checkpoint_id": 1, "epoch": 1} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("offsets", [{"s": {"0": 5}}, {"s": {0: "5"}}, {"": {}}, {5: {}}])
def test_offsets_that_are_no_texts_are_refused(catalog: Catalog, job: JobRow, offsets: dict[str, object]) -> None:
    mine = catalog.take("job")
    row = CheckpointRow(catalog.next_checkpoint_id("job", mine), 1)
    with pytest.raises(ValueError, match=r"must be (texts|a text) "):
        catalog.commit_job_checkpoint("job", mine, row, offsets)  # type: ignore[arg-type]
    assert catalog.checkpoints("job") == []


def test_checkpoint_that_was_left_behind_cannot_be_committed(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    row = CheckpointRow(catalog.next_checkpoint_id("job", mine), 1, status="left_behind")
    with pytest.raises(ValueError, match="committed with status 'committed', not 'left_behind'"):
        catalog.commit_job_checkpoint("job", mine, row, {})


# ---- going back


def test_rewound_job_stands_at_the_earlier_epoch_and_its_offsets(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    rows = [commit(catalog, mine, epoch) for epoch in (1, 2, 3, 4)]
    for _ in range(2):  # the second time changes nothing
        catalog.rewind("job", mine, 2, line=2)
        told = catalog.job("job")
        assert told is not None
        assert (told.latest_checkpoint_epoch, told.latest_checkpoint_id, told.line) == (2, 2, 2)
        assert told.source_checkpoints == {"orders": {"0": "2"}}
        assert catalog.checkpoints("job") == rows[:2] + [replace(row, status="left_behind") for row in rows[2:]]


def test_new_line_goes_on_from_the_earlier_epoch_and_the_old_line_does_not(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    for epoch in (1, 2, 3):
        commit(catalog, mine, epoch)
    catalog.rewind("job", mine, 1, line=2)
    with pytest.raises(EpochError, match="belongs to line 1, the job is in line 2"):
        commit(catalog, mine, 4, line=1)
    commit(catalog, mine, 2, line=2)
    told = [(row.line, row.epoch, row.status) for row in catalog.checkpoints("job")]
    assert told == [(1, 1, "committed"), (1, 2, "left_behind"), (1, 3, "left_behind"), (2, 2, "committed")]
    catalog.rewind("job", mine, 2, line=3)  # the new line's epoch 2
    assert catalog.job("job").latest_checkpoint_id == 5  # type: ignore[union-attr]  # 4 was refused above


def test_job_can_be_rewound_to_its_beginning(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    commit(catalog, mine, 1)
    catalog.rewind("job", mine, 0, line=2)
    told = catalog.job("job")
    assert told is not None
    assert (told.latest_checkpoint_epoch, told.latest_checkpoint_id, told.source_checkpoints) == (0, None, {})
    commit(catalog, mine, 1, line=2)


def test_rewinding_to_an_epoch_that_is_not_there_is_refused(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    for epoch in (2, 4):
        commit(catalog, mine, epoch)
    for epoch in (1, 3, 5):
        with pytest.raises(EpochError, match=f"epoch {epoch} is not among its latest committed ones: 2, 4"):
            catalog.rewind("job", mine, epoch, line=2)
    with pytest.raises(EpochError, match="line 1 does not come after line 1"):
        catalog.rewind("job", mine, 2, line=1)
    assert catalog.job("job").latest_checkpoint_epoch == 4  # type: ignore[union-attr]


def test_forgotten_checkpoints_are_gone_with_their_offsets(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    for epoch in (1, 2, 3):
        commit(catalog, mine, epoch)
    catalog.forget("job", mine, [1, 2, 77])
    catalog.forget("job", mine, range(1000, 3000))
    assert [row.checkpoint_id for row in catalog.checkpoints("job")] == [3]
    with pytest.raises(EpochError, match="there is no checkpoint 1"):
        catalog.source_checkpoints("job", 1)
    assert catalog.source_checkpoints("job") == {"orders": {"0": "3"}}


def test_checkpoint_that_the_job_stands_at_cannot_be_forgotten(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    commit(catalog, mine, 1)
    commit(catalog, mine, 2)
    with pytest.raises(ValueError, match="stands at checkpoint 2: it must stay"):
        catalog.forget("job", mine, [1, 2])
    assert len(catalog.checkpoints("job")) == 2
