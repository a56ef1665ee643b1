"""What a catalog promises, on SQLite and on a real PostgreSQL server alike."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lsmstate import CatalogError, EpochError, FencedError, StoreClosedError
from lsmstate.checkpoint.catalog import Catalog, CheckpointRow, JobRow

ORDERS = {"orders": {"0": "5", "1": "7"}, "payments": {"file": "a/b.parquet", "row": "12"}}


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    with Catalog.open(catalog_url) as opened:
        yield opened


@pytest.fixture
def job(catalog: Catalog) -> JobRow:
    return catalog.register("job", kind="pipeline", definition={"sources": ["orders"]})


def commit(catalog: Catalog, incarnation: int, epoch: int, name: str = "job", line: int = 1) -> CheckpointRow:
    """Commits an epoch with offsets that tell it."""
    row = CheckpointRow(catalog.next_checkpoint_id(name, incarnation), epoch, line)
    catalog.commit_job_checkpoint(name, incarnation, row, {"orders": {"0": str(epoch)}})
    return row


# ---- jobs


def test_job_is_found_as_it_was_registered_also_after_reopening(catalog: Catalog, catalog_url: str) -> None:
    before = time.time_ns() // 1_000_000
    made = catalog.register(
        "job", kind="sql", definition={"sql": "SELECT 1", "n": [1, None]}, comment="mine", checkpoint_interval_ms=5000
    )
    with Catalog.open(catalog_url) as again:
        assert again.job("job") == made
        assert again.jobs() == [made]
    assert (made.name, made.kind, made.definition) == ("job", "sql", {"sql": "SELECT 1", "n": [1, None]})
    assert (made.comment, made.checkpoint_interval_ms, made.latest_checkpoint_epoch) == ("mine", 5000, 0)
    assert (made.incarnation, made.line, made.source_checkpoints, made.changed) == (0, 1, {}, False)
    assert before <= made.created_ms <= time.time_ns() // 1_000_000
    assert len(made.job_id) == 32


def test_unknown_job_is_none(catalog: Catalog) -> None:
    assert catalog.job("nobody") is None
    assert catalog.jobs() == []


def test_interval_is_sixty_seconds_unless_told(job: JobRow) -> None:
    assert job.checkpoint_interval_ms == 60_000


def test_registering_again_changes_nothing(catalog: Catalog, job: JobRow) -> None:
    commit(catalog, catalog.take("job"), 1)
    known = catalog.job("job")
    assert catalog.register("job", kind="pipeline", definition={"sources": ["orders"]}) == known


def test_changed_definition_replaces_the_old_one_and_is_told(catalog: Catalog, job: JobRow) -> None:
    commit(catalog, catalog.take("job"), 1)
    changed = catalog.register("job", kind="pipeline", definition={"sources": ["other"]}, checkpoint_interval_ms=7)
    assert changed.changed
    assert (changed.job_id, changed.created_ms) == (job.job_id, job.created_ms)
    assert (changed.latest_checkpoint_epoch, changed.checkpoint_interval_ms) == (1, 7)
    assert catalog.job("job") == replace(changed, changed=False)


def test_job_of_another_kind_is_refused(catalog: Catalog, job: JobRow) -> None:
    with pytest.raises(CatalogError, match="is of kind pipeline, not spark; take another name") as refused:
        catalog.register("job", kind="spark", definition={})
    assert refused.value.reason == "other_kind"


@pytest.mark.parametrize("interval", [0, -1, True, 1.5, "5000", 2**63])
def test_bad_interval_is_refused(catalog: Catalog, interval: object) -> None:
    with pytest.raises(ValueError, match="checkpoint_interval_ms must be a whole number of at least 1"):
        catalog.register("job", kind="sql", definition={}, checkpoint_interval_ms=interval)  # type: ignore[arg-type]


@pytest.mark.parametrize("definition", [{"a": object()}, {"a": float("nan")}, {(1, 2): 3}, {"a": {1, 2}}])
def test_definition_that_json_cannot_hold_is_refused(catalog: Catalog, definition: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the definition of a job must be a mapping that JSON can hold"):
        catalog.register("job", kind="sql", definition=definition)
    assert catalog.jobs() == []


def test_jobs_are_listed_by_name_each_with_its_own_offsets(catalog: Catalog) -> None:
    for name in ("b", "a", "c"):
        catalog.register(name, kind="spark", definition={"of": name})
    mine = catalog.take("b")
    commit(catalog, mine, 1, "b")
    commit(catalog, mine, 2, "b")
    assert [job.name for job in catalog.jobs()] == ["a", "b", "c"]
    assert [job.source_checkpoints for job in catalog.jobs()] == [{}, {"orders": {"0": "2"}}, {}]


def test_dropped_job_made_again_finds_nothing_of_the_old_one(catalog: Catalog, job: JobRow) -> None:
    old = catalog.take("job")
    last = commit(catalog, old, 1)
    assert catalog.drop("job")
    assert catalog.job("job") is None
    with pytest.raises(FencedError, match="was dropped"):
        commit(catalog, old, 2)
    again = catalog.register("job", kind="spark", definition={})
    assert again.job_id != job.job_id
    assert (again.latest_checkpoint_epoch, again.source_checkpoints, catalog.checkpoints("job")) == (0, {}, [])
    with pytest.raises(FencedError):
        catalog.check("job", old)
    new = catalog.take("job")
    assert new > old
    assert catalog.next_checkpoint_id("job", new) > last.checkpoint_id


def test_dropping_an_absent_job_is_told_and_harmless(catalog: Catalog) -> None:
    assert not catalog.drop("nobody")


def test_job_that_was_never_registered_is_a_clear_error(catalog: Catalog) -> None:
    row = CheckpointRow(1, 1)
    for call in (
        lambda: catalog.take("nobody"),
        lambda: catalog.check("nobody", 1),
        lambda: catalog.next_checkpoint_id("nobody", 1),
        lambda: catalog.commit_job_checkpoint("nobody", 1, row, {}),
        lambda: catalog.rewind("nobody", 1, 1, 2),
        lambda: catalog.checkpoints("nobody"),
        lambda: catalog.forget("nobody", 1, [1]),
        lambda: catalog.source_checkpoints("nobody"),
    ):
        with pytest.raises(CatalogError, match="there is no job 'nobody' in the catalog; register it first") as error:
            call()
        assert error.value.reason == "unknown_job"


# ---- fences


def test_each_driver_gets_a_higher_incarnation_and_fences_the_one_before(catalog: Catalog, job: JobRow) -> None:
    first = catalog.take("job")
    catalog.check("job", first)
    second = catalog.take("job")
    assert second > first >= 1
    catalog.check("job", second)
    with pytest.raises(FencedError, match=f"driven by incarnation {second}, this is incarnation {first}"):
        catalog.check("job", first)


def test_fenced_driver_can_change_nothing(catalog: Catalog, job: JobRow) -> None:
    old = catalog.take("job")
    row = commit(catalog, old, 1)
    spare = catalog.next_checkpoint_id("job", old)
    catalog.take("job")
    before = (catalog.jobs(), catalog.checkpoints("job"))
    for call in (
        lambda: catalog.next_checkpoint_id("job", old),
        lambda: catalog.commit_job_checkpoint("job", old, CheckpointRow(spare, 2), ORDERS),
        lambda: catalog.commit_job_checkpoint("job", old, row, {"orders": {"0": "1"}}),
        lambda: catalog.rewind("job", old, 1, 2),
        lambda: catalog.forget("job", old, []),
    ):
        with pytest.raises(FencedError):
            call()
    assert (catalog.jobs(), catalog.checkpoints("job")) == before


def test_incarnation_that_was_never_given_out_is_fenced(catalog: Catalog, job: JobRow) -> None:
    for guessed in (0, 1, 99, -1):
        if guessed != job.incarnation:
            with pytest.raises(FencedError):
                catalog.check("job", guessed)


def test_checkpoint_ids_go_on_after_reopening_and_with_another_driver(
    catalog: Catalog, job: JobRow, catalog_url: str
) -> None:
    mine = catalog.take("job")
    given = [catalog.next_checkpoint_id("job", mine) for _ in range(3)]
    catalog.close()
    with Catalog.open(catalog_url) as again:
        given += [again.next_checkpoint_id("job", mine)]
        given += [again.next_checkpoint_id("job", again.take("job"))]
    assert given == [1, 2, 3, 4, 5]


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
    with pytest.raises(ValueError, match="must be (texts|a text) "):
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


# ---- names


@pytest.mark.parametrize(
    "name",
    [
        'it\'s "quoted" `so` ]; DROP TABLE lsmstate_jobs; --',
        "nul\x00inside\x00",
        "\u202eright to left\u200f",
        "x" * 10_240,
        "ü日本語🐘" * 1000,
        "lone \ud800 surrogate",
        "a\\x00b \\u202e %s :name ? {}",
        " ",
        "\n\t\x1b[31m",
    ],
    ids=["quotes", "nul", "rtl", "10kb", "wide", "surrogate", "escapes", "blank", "control"],
)
def test_names_are_data(catalog: Catalog, name: str) -> None:
    other = catalog.register(name + "2", kind="sql", definition={})
    catalog.register(name, kind="sql", definition={name: name}, comment=name)
    mine = catalog.take(name)
    row = CheckpointRow(catalog.next_checkpoint_id(name, mine), 1, manifest=name, note=name)
    catalog.commit_job_checkpoint(name, mine, row, {name: {name: name}})
    told = catalog.job(name)
    assert told is not None
    assert (told.name, told.comment, told.definition) == (name, name, {name: name})
    assert told.source_checkpoints == catalog.source_checkpoints(name) == {name: {name: name}}
    assert catalog.checkpoints(name) == [row]
    assert sorted(job.name for job in catalog.jobs()) == sorted([name, name + "2"])
    assert catalog.drop(name)
    assert catalog.jobs() == [other]


@pytest.mark.parametrize("name", ["", None, 5, b"bytes", "x" * 65_537])
def test_name_that_cannot_be_stored_is_refused(catalog: Catalog, name: object) -> None:
    with pytest.raises(ValueError, match="the name of a job"):
        catalog.register(name, kind="sql", definition={})  # type: ignore[arg-type]


def test_long_name_is_cut_and_escaped_in_messages(catalog: Catalog) -> None:
    with pytest.raises(CatalogError) as error:
        catalog.take("\x1b[31m\u202e" + "x" * 10_240)
    assert len(str(error.value)) < 400
    assert str(error.value).isprintable()
    assert "\u202e" not in str(error.value)


# ---- processes and threads


def test_threads_share_a_catalog_and_never_get_the_same_id(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    given: list[int] = []

    def ask() -> None:
        for _ in range(20):
            given.append(catalog.next_checkpoint_id("job", mine))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == list(range(1, 121))


def test_forked_child_and_parent_both_go_on(catalog: Catalog, job: JobRow) -> None:
    mine = catalog.take("job")
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            commit(catalog, mine, 1)
            catalog.close()
            ended = 0
        finally:
            os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0
    commit(catalog, mine, 2)
    assert [row.epoch for row in catalog.checkpoints("job")] == [1, 2]


def test_catalogs_opened_at_once_make_the_schema_once(catalog_url: str) -> None:
    start, opened, failed = threading.Barrier(6), [], []

    def open_one(number: int) -> None:
        start.wait()
        try:
            with Catalog.open(catalog_url) as mine:
                opened.append(mine.register(f"job-{number}", kind="sql", definition={}))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=open_one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with Catalog.open(catalog_url) as after:
        assert (
            [job.name for job in after.jobs()] == sorted(job.name for job in opened) == [f"job-{n}" for n in range(6)]
        )


def test_closed_catalog_says_so(catalog: Catalog) -> None:
    catalog.close()
    catalog.close()
    with pytest.raises(StoreClosedError, match="is closed; open it again"):
        catalog.jobs()


def test_importing_lsmstate_does_not_import_the_database_library() -> None:
    asked = (
        "import sys, lsmstate, lsmstate.checkpoint; sys.exit(any(m in sys.modules for m in ('sqlalchemy', 'psycopg')))"
    )
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0
