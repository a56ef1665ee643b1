"""`lsmstate dump`: all of one SSTable, wherever it lies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lsmstate.sstable.format import BLOCK
from tests.cli.conftest import Run
from tests.support.cli_state import damage, newest_file


def test_dump_shows_header_index_filters_statistics_checks_and_rows(run: Run, built: Path) -> None:
    file = newest_file(built)
    result = run("dump", file)
    assert (result.code, result.err) == (0, "")
    for words in (
        f"SSTable {file}",
        "written for epoch 4",
        "(of this name)",
        "1,000 rows in",
        "Columns of ads",
        "Runs of clicks",
        "2026-01-01T00:06:40Z",
        "1.0% false hits by design",
        "blocks match their checksums",
        "OK",
        "Rows: 10 of 1,500 rows in the file",
        "NULL",
    ):
        assert words in result.out


def test_dump_json_has_the_documented_parts(run: Run, built: Path) -> None:
    told = run("dump", newest_file(built), "--json").json
    assert told["schema"] == "lsmstate.dump/1"
    assert {*told} == {
        *("schema", "path", "format", "block_bytes", "uid", "digest", "has_own_name", "epoch"),
        *("sizes", "sides", "runs", "key_filter", "checks", "rows"),
    }
    assert sum(told["sizes"].values()) == 2 * told["sizes"]["file_bytes"] == 2 * newest_file(built).stat().st_size
    assert [(s["name"], s["rows"], s["keys"]) for s in told["sides"]] == [
        ("ads", 1000, ["ad_id"]),
        ("clicks", 500, ["shop", "number"]),
    ]
    assert [c["nulls"] for c in told["sides"][0]["columns"]] == [100, 0, 250]
    assert [c["role"] for c in told["sides"][1]["columns"]] == ["time", "key", "key", None]
    assert sum(r["rows"] for r in told["runs"]) == 1500
    for each in told["runs"]:
        assert each["start_us"] <= each["min_ts_us"] <= each["max_ts_us"] <= each["end_us"]
        assert 0 < each["bloom"]["false_positive_rate"] < each["bloom"]["fill"] < 1
    assert told["key_filter"]["exists"]
    blocks = -(-told["sizes"]["data_bytes"] // BLOCK)
    assert told["checks"] == {"blocks": blocks, "bad_blocks": [], "problems": []}
    assert (told["rows"]["total"], told["rows"]["found"], len(told["rows"]["shown"])) == (1500, 1500, 10)


def test_rows_are_limited_and_can_be_left_out(run: Run, built: Path) -> None:
    file = newest_file(built)
    assert len(run("dump", file, "--json", "--rows", 5000).json["rows"]["shown"]) == 1500
    assert run("dump", file, "--json", "--rows", 0).json["rows"]["shown"] == []
    assert "Rows: 0 of 1,500 rows" in run("dump", file, "--rows", 0).out


def test_key_of_one_column_finds_its_rows(run: Run, built: Path) -> None:
    rows = run("dump", newest_file(built), "--json", "--key", 7).json["rows"]
    assert [row["values"]["ad_id"] for row in rows["shown"]] == [7] * 4
    assert rows["found"] == 4
    assert rows["shown"][0]["values"]["ts"].startswith("2026-01-01T00:")


@pytest.mark.parametrize(
    "key",
    [["--key", "shop-1,4"], ["--key", "number=4", "--key", "shop=shop-1"], ["--key=shop=shop-1", "--key=number=4"]],
)
def test_key_of_several_columns_finds_its_rows(run: Run, built: Path, key: list[str]) -> None:
    rows = run("dump", newest_file(built), "--json", *key).json["rows"]
    assert {(row["values"]["shop"], row["values"]["number"]) for row in rows["shown"]} == {("shop-1", 4)}
    assert rows["found"] == len([n for n in range(2000, 2500) if n % 3 == 1 and n % 5 == 4])


def test_absent_key_finds_nothing(run: Run, built: Path) -> None:
    result = run("dump", newest_file(built), "--key", 12345)
    assert result.code == 0
    assert "Rows: 0 of 0 rows with key 12345" in result.out


@pytest.mark.parametrize("key", [["x"], ["1,2,3"], ["shop=shop-1"], ["other=1"], ["1", "2"], [str(2**63)]])
def test_key_that_fits_no_side_is_misuse(run: Run, built: Path, key: list[str]) -> None:
    result = run("dump", newest_file(built), *(word for one in key for word in ("--key", one)))
    assert (result.code, result.out) == (2, "")
    assert "ad_id (int64)" in result.err
    assert result.err.count("\n") == 1


def test_copied_and_renamed_file_can_be_dumped(run: Run, built: Path, tmp_path: Path) -> None:
    copy = shutil.copy(newest_file(built), tmp_path / "copy.bin")
    result = run("dump", copy)
    assert result.code == 0
    assert "renamed or copied" in result.out
    assert run("dump", copy, "--json").json["has_own_name"] is False


def test_file_behind_a_link_is_found(run: Run, built: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(newest_file(built))
    assert run("dump", tmp_path / "link", "--json").json["has_own_name"] is True


def test_damaged_block_is_named_and_other_runs_are_shown(run: Run, state: Path) -> None:
    file = newest_file(state)
    damage(file, BLOCK + 100)
    told = run("dump", file, "--json", "--rows", 5000)
    assert told.code == 1
    assert told.json["checks"]["bad_blocks"] == [1]
    assert told.json["checks"]["problems"] == [f"damaged block at byte {BLOCK}"]
    unreadable, shown = told.json["rows"]["unreadable"], told.json["rows"]["shown"]
    assert unreadable
    assert shown
    assert {row["run"] for row in shown}.isdisjoint({bad["run"] for bad in unreadable})
    human = run("dump", file)
    assert human.code == 1
    assert f"damaged block at byte {BLOCK}" in human.out
    assert "its rows cannot be read" in human.out


@pytest.mark.parametrize("at", [-1, -30, -200])
def test_damaged_footer_or_index_is_exit_code_2(run: Run, state: Path, at: int) -> None:
    file = newest_file(state)
    damage(file, file.stat().st_size + at)
    result = run("dump", file)
    assert (result.code, result.out) == (2, "")
    assert "damaged at byte" in result.err


def test_truncated_file_is_exit_code_2(run: Run, state: Path) -> None:
    file = newest_file(state)
    file.write_bytes(file.read_bytes()[:-500])
    result = run("dump", file)
    assert (result.code, result.out) == (2, "")


def test_what_is_no_sstable_is_refused_in_words(run: Run, built: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("just text, " * 50)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (text, "is not an SSTable"),
        (tmp_path / "empty", "is not an SSTable"),
        (tmp_path / "pipe", "not a regular file"),
        (built, "is a directory"),
    ):
        result = run("dump", path)
        assert (result.code, result.out) == (2, "")
        assert words in result.err


@pytest.mark.parametrize("width", ["80", "100", "120"])
def test_tables_fit_the_width_and_lose_nothing(
    run: Run, built: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    result = run("dump", newest_file(built))
    lines = [line for line in result.out.splitlines() if str(built) not in line]
    assert max(map(len, lines)) <= int(width)
    assert "…" not in result.out
