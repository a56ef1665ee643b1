"""`lsmstate why`: for people and for machines, of both sides or of one."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tests.cli.test_join_state import on_one_line
from tests.support.join_home import JoinHome


def test_why_tells_of_both_sides(run: Run, sound_join: JoinHome) -> None:
    result = run("why", sound_join.path, "--key", "5003")
    assert result.code == 0
    told = on_one_line(result.out)
    assert "The left row of 2026-01-01T00:05:00.300000Z is matched" in told
    assert "The right row of 2026-01-01T00:05:00.300000Z is matched" in told


def test_why_json_has_the_documented_parts(run: Run, sound_join: JoinHome) -> None:
    told = run("why", sound_join.path, "--key", "5003", "--side", "left", "--json").json
    assert {*told} == {"schema", "path", "sides"}
    (side,) = told["sides"]
    assert {*side} == {"side", "key", "epoch", "watermark_us", "rows", "text"}
    assert (side["side"], side["key"]) == ("left", [5003])
    assert {*side["rows"][0]} == {"ts_us", "status", "epoch", "watermark_us", "partners", "text"}


def test_why_of_an_older_epoch(run: Run, sound_join: JoinHome) -> None:
    newest = run("why", sound_join.path, "--key", "5003", "--json").json["sides"][0]["epoch"]
    told = run("why", sound_join.path, "--key", "5003", "--epoch", str(newest - 1), "--json").json
    assert told["sides"][0]["epoch"] == newest - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--key", "x"], "the key of left is ad_id (int64)"),
        (["--key", "1", "--epoch", "99"], "epoch 99 does not exist"),
    ],
)
def test_bad_questions_are_one_line_and_exit_code_2(
    run: Run, sound_join: JoinHome, arguments: list[str], message: str
) -> None:
    result = run("why", sound_join.path, *arguments)
    assert result.code == 2
    assert message in on_one_line(result.err)
