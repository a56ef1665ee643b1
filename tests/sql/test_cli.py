"""`lsmstate sql FILE`: executes, runs, tells what became of each table, and says it by its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lsmstate.cli import main
from lsmstate.cli.sql import _Screen
from lsmstate.sql import Session
from tests.support.sql_tables import by_duckdb, gates, named, put, rows, streaming, written

ON = "i.ad_id = c.ad_id AND c.ts BETWEEN i.ts AND i.ts + INTERVAL '9 seconds'"
SELECT = f"SELECT i.n, c.n AS m FROM impressions i LEFT JOIN clicks c ON {ON}"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(tmp_path / "in/impressions", rows(1, 200))
    put(tmp_path / "in/clicks", rows(2, 200))
    (tmp_path / "ads.sql").write_text(named(tmp_path, "impressions", "clicks") + streaming(tmp_path, "joined", SELECT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LSMSTATE_CATALOG", raising=False)
    return tmp_path


def test_a_file_is_executed_and_its_tables_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "ads.sql"]) == 0
    out = capsys.readouterr().out
    assert "streaming table joined is made; a checkpoint every 20 ms" in out
    assert "1 streaming table ran" in out
    assert written(root, "joined") == by_duckdb(root, SELECT)
    assert (root / "state/catalog.db").is_file()
    assert main(["sql", "ads.sql"]) == 0, "it goes on"
    assert "is there, and stays as it is" in capsys.readouterr().out
    assert written(root, "joined") == by_duckdb(root, SELECT)


def test_the_report_tells_all_in_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "more.sql").write_text((root / "ads.sql").read_text() + "SHOW STREAMING TABLES;")
    assert main(["sql", "more.sql", "--json", "--state", "st", "--catalog", "sqlite:///cat/log.db"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "lsmstate.sql/1"
    assert [told["statement"] for told in report["results"]] == [
        "create table",
        "create table",
        "create streaming table",
        "show streaming tables",
    ]
    assert report["results"][-1]["rows"][0]["created_us"] > 0
    (told,) = report["tables"]
    assert (told["name"], told["end"], told["error"]) == ("joined", "ended", None)
    assert told["rows_read"] == {"clicks": 200, "impressions": 200}
    assert told["rows_written"] == len(by_duckdb(root, SELECT))
    assert (root / "st").is_dir()
    assert (root / "cat/log.db").is_file()


def test_a_table_that_fails_is_told_and_the_others_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(root / "in/other", rows(3, 50), files=1)
    bad = streaming(root, "bad", SELECT.replace("clicks", "other"))
    Session("sqlite:///state/catalog.db").execute(named(root, "impressions", "other") + bad)
    (root / "in/other/0000.parquet").unlink()
    (root / "in/other").rmdir()
    assert main(["sql", "ads.sql"]) == 1
    out = capsys.readouterr().out
    assert "FAILED bad:" in out
    assert written(root, "joined") == by_duckdb(root, SELECT)


def test_a_wrong_statement_is_one_line_with_its_place(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "bad.sql").write_text((root / "ads.sql").read_text().replace("'20'", "'abc'"))
    assert main(["sql", "bad.sql"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("lsmstate: line 3, column ")
    assert "'abc' is no interval" in err
    assert err.count("\n") == 1
    assert not (root / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.sql"], "nowhere.sql: No such file"),
        (["binary.sql"], "binary.sql: is not UTF-8, at byte 0"),
        (["ads.sql", "--catalog", "mysql://me:hunter2@host/db"], "no URL of a catalog"),
    ],
)
def test_what_cannot_be_read_is_told(
    arguments: list[str], told: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "binary.sql").write_bytes(b"\xff\xfe")
    assert main(["sql", *arguments]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "hunter2" not in err


def test_a_file_that_makes_nothing_runs_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Session("sqlite:///state/catalog.db").execute((root / "ads.sql").read_text())
    (root / "show.sql").write_text("SHOW STREAMING TABLES")
    assert main(["sql", "show.sql"]) == 0
    out = capsys.readouterr().out
    assert "joined" in out
    assert "ran" not in out
    assert written(root, "joined") == []


def test_the_catalog_may_come_from_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSMSTATE_CATALOG", f"sqlite:///{root}/elsewhere.db")
    (root / "show.sql").write_text("SHOW STREAMING TABLES")
    assert main(["sql", "show.sql"]) == 0
    assert (root / "elsewhere.db").is_file()


def test_the_screen_shows_tables_that_run_and_those_that_could_not_start(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session("sqlite:///state/catalog.db")
    session.execute((root / "ads.sql").read_text() + streaming(root, "bad", SELECT))
    (root / "out").mkdir()
    (root / "out/bad").write_text("no directory")
    assert set(session.start()) == {"bad"}
    assert session.wait()["joined"].error is None
    Console().print(_Screen(session))
    bad, joined = capsys.readouterr().out.splitlines()
    assert "not started" in bad
    assert "read clicks 200, impressions 200" in joined


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_stops_with_a_savepoint(
    as_json: bool, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: Any) -> None:
        assert all(source.waits.wait(60) for source in made)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        made = gates(patch, 100)
        patch.setattr(Session, "wait", interrupted)
        assert main(["sql", "ads.sql", *(["--json"] if as_json else [])]) == 130
    out = capsys.readouterr().out
    if as_json:
        assert [(told["name"], told["end"]) for told in json.loads(out)["tables"]] == [("joined", "stopped")]
    else:
        assert "Interrupted" in out
        assert "stopped" in out
    assert main(["sql", "ads.sql"]) == 0
    assert written(root, "joined") == by_duckdb(root, SELECT)
