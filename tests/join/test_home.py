"""The home of a join: bound to one join, worked on by one run of one query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lsmstate import CorruptionError, FencedError, LsmStateError, NotAStateError, SchemaError
from lsmstate.join.home import Home, home_of, is_home
from lsmstate.join.pace import Pace
from lsmstate.join.runs import enter_run
from lsmstate.manifest.codec import encode
from tests.support.join_home import QUERY, RUN, JoinHome, join_spec
from tests.support.simfs import SimFileSystem

PATH = "/state/home"


@pytest.fixture
def fs() -> SimFileSystem:
    return SimFileSystem()


@pytest.fixture
def home(fs: SimFileSystem) -> Home:
    made = Home(fs, PATH)
    made.bind(join_spec(PATH))
    return made


# ---- binding


def test_home_is_bound_once_and_found_again(home: Home) -> None:
    home.bind(replace(join_spec(PATH), retain=99, pace=Pace((0, 0))))  # those may change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"job": "other"}, NotAStateError, "the state of job 'ads', not of 'other'"),
        ({"partitions": 4}, SchemaError, "partitions was 3 and is now 4"),
        ({"upper_s": 7}, SchemaError, "the upper bound of the times was"),
        ({"title_kind": pa.int64()}, SchemaError, "'title' is int64 instead of string: only"),
    ],
)
def test_home_of_another_join_is_refused(
    home: Home, change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        home.bind(join_spec(PATH, **change))  # type: ignore[arg-type]


def test_columns_may_change_and_the_home_tells_the_new_ones(home: Home) -> None:
    changed = join_spec(PATH, title="name")
    for _ in range(2):
        home.bind(changed)
        assert home.job() == changed.describe()
    home.bind(join_spec(PATH))  # and back
    assert home.job() == join_spec(PATH).describe()
    assert sorted(name for name in home.fs.list_dir(PATH) if name.startswith("JOB")) == [
        "JOB",
        "JOB-000001",
        "JOB-000002",
    ]


def test_columns_changed_by_two_queries_at_once_are_those_of_the_first(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Home.publish

    def late(self: Home, directory: str, name: str, body: Mapping[str, Any], version: int) -> bool:
        if name.startswith("JOB-"):
            monkeypatch.setattr(Home, "publish", publish)
            Home(self.fs, PATH).bind(join_spec(PATH, title="first"))
        return publish(self, directory, name, body, version)

    monkeypatch.setattr(Home, "publish", late)
    with pytest.raises(SchemaError, match="another query changes the columns at the same time"):
        home.bind(join_spec(PATH, title="second"))
    assert home.job() == join_spec(PATH, title="first").describe()


def test_damaged_job_is_never_written_anew(home: Home) -> None:
    data = home.fs.read(f"{PATH}/JOB", 1 << 20)
    for bad in (data[:-5], encode("JOB", {}), encode("JOB", {**home.read("", "JOB"), "sides": 7})):  # type: ignore[dict-item]
        home.fs.unlink(f"{PATH}/JOB")
        file = home.fs.create(f"{PATH}/JOB")
        file.write([bad])
        file.close()
        with pytest.raises(CorruptionError, match="JOB"):
            home.bind(join_spec(PATH))


def test_directory_of_somebody_else_is_refused() -> None:
    fs = SimFileSystem.of({f"{PATH}/photos/cat.jpg": b"x"})
    with pytest.raises(NotAStateError, match="holds 'photos'"):
        Home(fs, PATH).bind(join_spec(PATH))
    assert fs.list_dir(PATH) == ["photos"]


def test_home_is_told_from_other_directories(fs: SimFileSystem) -> None:
    join = JoinHome(PATH, fs=fs).epochs(1)
    assert is_home(fs, PATH)
    assert not is_home(fs, f"{PATH}/p-00000")
    assert not is_home(fs, f"{PATH}/JOB")
    assert not is_home(fs, "/nothing")
    assert home_of(fs, f"{PATH}/p-00000") == PATH
    assert home_of(fs, f"{PATH}/barriers") is None
    assert home_of(fs, PATH) is None
    fs.unlink(f"{PATH}/JOB")
    assert is_home(fs, PATH)  # what is left of one
    assert join.home.partitions_made() == [0, 1, 2]


@pytest.mark.parametrize(
    "tree", [{"/d/JOB": b"mine"}, {"/d/barriers": None}, {"/d/p-00000": None}, {"/d/JOB": None}, {"/d/STATE": b""}]
)
def test_directory_of_somebody_else_is_no_home(tree: dict[str, bytes | None]) -> None:
    assert not is_home(SimFileSystem.of(tree), "/d")


# ---- runs


def test_all_tasks_of_a_run_get_its_number(home: Home) -> None:
    assert [enter_run(home, QUERY, RUN, batch).number for batch in (0, 0, 1)] == [1, 1, 1]


def test_next_run_of_the_query_gets_the_next_number(home: Home) -> None:
    enter_run(home, QUERY, "one", 0)
    assert enter_run(home, QUERY, "two", 3).number == 2
    assert enter_run(home, QUERY, "two", 4).number == 2


def test_replaced_run_is_fenced(home: Home) -> None:
    enter_run(home, QUERY, "one", 0)
    enter_run(home, QUERY, "two", 0)
    with pytest.raises(FencedError, match="run one was replaced by run two"):
        enter_run(home, QUERY, "one", 1)


def test_other_query_is_refused(home: Home) -> None:
    enter_run(home, QUERY, RUN, 0)
    with pytest.raises(LsmStateError, match=f"belongs to query {QUERY}, this is query other"):
        enter_run(home, "other", "run", 0)
    assert home.listed("runs") == ["00000001"]


def test_state_that_was_deleted_is_missed(home: Home) -> None:
    with pytest.raises(LsmStateError, match="the state is new, but the query is at batch 6: the state was deleted"):
        enter_run(home, QUERY, RUN, 6)
    assert home.listed("runs") == []


def test_damaged_run_is_not_passed_over(home: Home) -> None:
    enter_run(home, QUERY, "one", 0)
    path = f"{PATH}/runs/00000001"
    data = home.fs.read(path, 1 << 20)
    home.fs.unlink(path)
    file = home.fs.create(path)
    file.write([data[:-3]])
    file.close()
    with pytest.raises(CorruptionError, match="runs/00000001"):
        enter_run(home, QUERY, "two", 1)


def test_old_runs_are_removed_and_numbers_go_on(home: Home) -> None:
    for number in range(1, 131):
        assert enter_run(home, QUERY, f"run {number}", 0).number == number
    assert len(home.listed("runs")) < 110
    assert enter_run(home, QUERY, "run 130", 0).number == 130


def test_copy_that_has_lost_its_empty_directories_is_mended(home: Home, fs: SimFileSystem) -> None:
    copy = SimFileSystem()
    copy.make_dir("/state")
    copy.make_dir(PATH)
    file = copy.create(f"{PATH}/JOB")
    file.write([fs.read(f"{PATH}/JOB", 1 << 20)])
    file.close()
    again = Home(copy, PATH)
    again.bind(join_spec(PATH))
    assert enter_run(again, QUERY, RUN, 0).number == 1


def test_host_that_does_not_see_the_state_is_named(fs: SimFileSystem) -> None:
    with pytest.raises(LsmStateError, match=r"is not there on host .* that the driver, all executors"):
        enter_run(Home(fs, "/elsewhere"), QUERY, RUN, 0)
