"""What a catalog promises, on SQLite and on a real PostgreSQL server alike."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from lsmstate import CatalogError, FencedError, StoreClosedError
from lsmstate.checkpoint.catalog import Catalog, CheckpointRow, JobRow
from tests.support.catalog_cases import ORDERS, commit

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
