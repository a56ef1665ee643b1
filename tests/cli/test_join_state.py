"""`lsmstate inspect` and `verify` of a join's state: sound ones, at every moment of their life."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lsmstate.cli import join_report, verify_join
from lsmstate.engine import verify as engine_verify
from lsmstate.join import verify as join_verify
from lsmstate.join.history import History
from lsmstate.join.home import Home
from lsmstate.join.runs import enter_run
from tests.cli.conftest import JOIN_LAST as LAST
from tests.cli.conftest import Run, on_screen
from tests.cli.test_hostile import visible
from tests.support.join_home import QUERY, ROWS, RUN, SECOND_US, START_US, JoinHome, join_spec

KEPT = 2  # epochs whose right rows the watermark has not retired yet


def tree(path: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in path.rglob("*")}


def on_one_line(text: str) -> str:
    """Words without the line breaks that fit them to a terminal."""
    return " ".join(text.split())


def test_inspect_shows_what_is_joined_how_far_it_is_and_what_it_holds(run: Run, sound_join: JoinHome) -> None:
    result = run("inspect", sound_join.path)
    assert (result.code, result.err) == (0, "")
    for words in (
        f"Join ads in {sound_join.path}",
        "left ad_id = right ad, with right at - left ts from -5s to 1h",
        "epoch 5, which is batch 4 of Spark",
        "2026-01-01T00:04:01.900Z",
        "840 rows in 15 files",
        "epochs 3 to 5 (batches 2 to 4)",
        f"1 so far; the last one is run {RUN} of query {QUERY}",
        "600 rows, about ",
        "key ad_id; time ts; rows kept 1h; buckets of 3m 45s",
        "key ad; time at; rows kept 5s; buckets of 1s",
        "columns: ad int64, at timestamp[us, tz=UTC], price double",
        "Partitions at epoch 5",
    ):
        assert words in on_one_line(result.out)
    assert "under way nothing" in on_one_line(result.out)
    assert "DAMAGED" not in result.out


def test_inspect_json_has_the_documented_parts(run: Run, sound_join: JoinHome) -> None:
    told = run("inspect", sound_join.path, "--json").json
    assert {*told} == {
        *("schema", "path", "job", "partitions", "within", "newest", "watermark_us", "rows", "files", "file_bytes"),
        *("sides", "by_partition", "epochs", "under_way", "runs", "match", "how", "line", "left_behind"),
    }
    assert (told["schema"], told["path"], told["job"]) == ("lsmstate.inspect-join/1", str(sound_join.path), "ads")
    assert told["within"] == {"lower_us": -5 * SECOND_US, "upper_us": 3600 * SECOND_US}
    assert (told["newest"]["epoch"], told["newest"]["batch"]) == (LAST, LAST - 1)
    assert told["newest"]["watermark_us"] == told["watermark_us"] == START_US + 241_900_000
    assert [(e["epoch"], e["batch"], e["error"]) for e in told["epochs"]] == [(3, 2, None), (4, 3, None), (5, 4, None)]
    assert [(s["name"], s["rows"]) for s in told["sides"]] == [("left", LAST * ROWS), ("right", KEPT * ROWS)]
    assert told["rows"] == (LAST + KEPT) * ROWS
    assert [p["partition"] for p in told["by_partition"]] == [0, 1, 2]
    for total, part in (("files", "files"), ("file_bytes", "bytes")):
        assert told[total] == sum(p[part] for p in told["by_partition"])
    assert sum(p["left_rows"] for p in told["by_partition"]) == LAST * ROWS
    on_disk = sum(file.stat().st_size for file in sound_join.path.glob("p-*/sst/*"))
    assert told["file_bytes"] == on_disk
    assert abs(sum(s["approx_bytes"] for s in told["sides"]) - on_disk) < 100
    assert min(p["min_ts_us"] for p in told["by_partition"]) == START_US + 60 * SECOND_US
    assert told["under_way"] is None
    assert told["runs"] == {"count": 1, "query": QUERY, "run": RUN, "error": None}


def test_sound_join_is_exit_code_0(run: Run, sound_join: JoinHome) -> None:
    result = run("verify", sound_join.path)
    assert (result.code, result.err) == (0, "")
    assert "epochs 3 to 5 in 15 files, every byte of them, and what holds 3 partitions together" in on_one_line(
        result.out
    )
    assert run("verify", sound_join.path, "--json").json == {
        "schema": "lsmstate.verify/1",
        "path": str(sound_join.path),
        "ok": True,
        "opened": True,
        "epochs": [3, 4, 5],
        "whole_epochs": [3, 4, 5],
        "files": 15,
        "problems": [],
        "advice": [],
        "job": "ads",
        "partitions": 3,
        "under_way": None,
        "under_way_batch": None,
    }


def test_neither_command_changes_anything(run: Run, sound_join: JoinHome) -> None:
    before = tree(sound_join.path)
    run("inspect", sound_join.path)
    run("verify", sound_join.path)
    assert tree(sound_join.path) == before


def test_partition_by_itself_is_a_plain_state_with_a_note(run: Run, sound_join: JoinHome) -> None:
    for command in ("inspect", "verify"):
        result = run(command, sound_join.partition(1))
        assert (result.code, result.err) == (0, "")
        assert f"State {sound_join.partition(1)}" in result.out
        assert f"lsmstate {command} {sound_join.path}" in on_one_line(result.out)
    assert run("inspect", sound_join.partition(1), "--json").json["schema"] == "lsmstate.inspect/1"


def test_join_without_an_epoch_is_told_as_such(run: Run, tmp_path: Path) -> None:
    new = JoinHome(tmp_path / "new")
    shutil.rmtree(new.path / "runs")
    (new.path / "runs").mkdir()
    for _ in range(2):
        result = run("inspect", new.path)
        assert result.code == 0
        assert "none yet: no epoch is complete" in result.out
        told = run("inspect", new.path, "--json").json
        assert (told["newest"], told["epochs"], told["by_partition"], told["rows"]) == (None, [], [], 0)
        assert told["runs"] == {"count": 0, "query": None, "run": None, "error": None}
        result = run("verify", new.path)
        assert result.code == 0
        assert "nothing was committed yet" in result.out
        for name in ("barriers", "runs"):  # as some copies lose empty directories
            shutil.rmtree(new.path / name, ignore_errors=True)


def test_epoch_that_has_begun_is_under_way_until_all_partitions_finish_it(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home").epochs(2)
    join.epoch(3, partitions=[0, 2])
    told = run("inspect", join.path, "--json").json
    assert told["newest"]["epoch"] == 2
    assert (told["under_way"]["epoch"], told["under_way"]["batch"]) == (3, 2)
    assert (told["under_way"]["finished"], told["under_way"]["waiting"]) == ([0, 2], [1])
    assert "finished in 2 of 3 partitions, not yet in 1" in on_one_line(run("inspect", join.path).out)
    verified = run("verify", join.path, "--json").json
    assert (verified["epochs"], verified["under_way"]) == ([1, 2], 3)
    assert "not yet epoch 3 (batch 2): some partitions have not" in on_one_line(run("verify", join.path).out)
    join.epoch(3, partitions=[1])
    told = run("inspect", join.path, "--json").json
    assert (told["newest"]["epoch"], told["under_way"]) == (3, None)
    assert run("verify", join.path, "--json").json["epochs"] == [1, 2, 3]


def test_first_epoch_under_way_shows_no_rows(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home")
    join.epoch(1, partitions=[1])
    told = run("inspect", join.path, "--json").json
    assert (told["newest"], told["under_way"]["waiting"]) == (None, [0, 2])
    assert run("verify", join.path).code == 0


def test_candidates_of_retried_tasks_are_no_problem(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home")
    for epoch in (1, 2, 3):
        join.epoch(epoch, partitions=[1])
        join.epoch(epoch)
    (join.partition(1) / "manifest" / "000000000003-000001-torn-000001.full").write_bytes(b"lsmstate 1 ")
    assert run("verify", join.path).code == 0
    told = run("inspect", join.path, "--json").json
    assert (told["newest"]["epoch"], told["rows"]) == (3, 5 * ROWS)


def test_partition_without_rows_is_shown_without_times(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home")
    join.epoch(1, sides=())
    told = run("inspect", join.path, "--json").json
    assert [(p["files"], p["min_ts_us"]) for p in told["by_partition"]] == [(0, None)] * 3
    assert run("inspect", join.path).code == run("verify", join.path).code == 0


def test_inspect_starts_again_when_its_epoch_is_retired_meanwhile(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = JoinHome(tmp_path / "home").epochs(2)
    real, calls = join_report.history_of, [0]

    def overtaken(home: Home, partitions: int) -> History:
        found = real(home, partitions)
        calls[0] += 1
        if calls[0] == 1:
            for epoch in range(3, 9):
                join.epoch(epoch)
        return found

    monkeypatch.setattr(join_report, "history_of", overtaken)
    told = run("inspect", join.path, "--json").json
    assert (told["newest"]["epoch"], calls[0]) == (8, 2)


def test_epochs_that_are_retired_while_they_are_verified_are_no_problem(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = JoinHome(tmp_path / "home").epochs(3)
    real = join_verify._check_barriers

    def overtaken(*arguments: object) -> object:
        for epoch in range(4, 9):
            join.epoch(epoch)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(join_verify, "_check_barriers", overtaken)
    result = run("verify", join.path)
    assert (result.code, result.err) == (0, "")


def test_each_file_is_checked_once_though_epochs_share_it(
    sound_join: JoinHome, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    real, seen = engine_verify.problems_of, []
    monkeypatch.setattr(engine_verify, "problems_of", lambda table: seen.append(table.path) or real(table))
    assert run("verify", sound_join.path).code == 0
    assert sorted(seen) == sorted(map(str, sound_join.path.glob("p-*/sst/*")))


def test_progress_goes_to_a_terminal_on_stderr_only(sound_join: JoinHome, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    assert verify_join.check(sound_join.home.fs, str(sound_join.path))["ok"]
    assert "checking" in screen.err.getvalue()
    assert "partitions" in screen.err.getvalue()
    assert screen.out.getvalue() == ""


def test_hostile_names_are_escaped(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "[i]home\x1b[5m"
    spec = join_spec(str(path), job="[red]job\x1b[2J\u202e", title="[b]title\n\x9b31m")
    join = JoinHome(path, spec).epochs(2)
    enter_run(join.home, QUERY, "run\x1b]0;title\x07", 1)
    out = run("inspect", path).out + run("verify", path).out + run("verify", join.partition(0)).out
    join.sstable(0, 2).unlink()
    out += run("verify", path).out
    assert visible(out)
    for words in ("[red]job\\x1b[2J\\u202e", "[b]title\\n\\x9b31m", "[i]home\\x1b[5m", "run\\x1b]0;title\\x07"):
        assert words in out
    result = run("inspect", path, "--json")
    assert result.out.isascii()
    assert result.json["job"] == "[red]job\x1b[2J\u202e"


@pytest.mark.parametrize("width", ["80", "100", "120"])
def test_tables_fit_the_width_and_lose_nothing(
    run: Run, sound_join: JoinHome, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    result = run("inspect", sound_join.path)
    lines = [line for line in result.out.splitlines() if str(sound_join.path) not in line]
    assert max(map(len, lines)) <= int(width)
    assert "…" not in result.out


def test_many_partitions_are_summed_up(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    join = JoinHome(tmp_path / "home", join_spec(str(tmp_path / "home"), partitions=7)).epochs(1)
    monkeypatch.setattr("lsmstate.cli.inspect_join._PARTITIONS_SHOWN", 4)
    monkeypatch.setattr("lsmstate.cli.inspect_join._NAMED", 2)
    assert "3 more" in run("inspect", join.path).out
    join.epoch(2, partitions=[0])
    assert "not yet in 1, 2 and 4 more" in on_one_line(run("inspect", join.path).out)


def test_directory_of_somebody_else_is_refused_in_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "JOB").write_text("feed the cat")
    (tmp_path / "cut-short" / "barriers").mkdir(parents=True)
    for name in ("mine", "cut-short"):
        for command in ("inspect", "verify"):
            result = run(command, tmp_path / name)
            assert (result.code, result.out) == (2, "")
            assert "is not a state" in result.err


def test_state_of_a_newer_lsmstate_is_exit_code_2(run: Run, tmp_path: Path) -> None:
    join = JoinHome(tmp_path / "home").epochs(1)
    for file in (join.barrier_file(1), join.path / "JOB"):
        file.write_bytes(file.read_bytes().replace(b"lsmstate 1 ", b"lsmstate 9 ", 1))
        for command in ("inspect", "verify"):
            result = run(command, join.path)
            assert (result.code, result.out) == (2, "")
            assert "format 9" in result.err
