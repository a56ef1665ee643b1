"""Names, values and files that somebody else made: nothing reaches the terminal raw, nothing ends in a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsmstate import Side, StateStore
from tests.cli.conftest import Run
from tests.support.cli_state import damage, head, newest_file, rewrite_index, rewrite_manifest

NASTY = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "[bold red]markup[/bold red]",
    "[/]",
    "[link=file:///etc/passwd]x[/link]",
    ":smile:",
    "line\nbreak\r\ttab",
    "\u202eright to left",
    "\x9b31m",
    "\x00nul",
    "",
    "NULL",
]


@pytest.fixture
def nasty(tmp_path: Path) -> Path:
    name = "[red]side[/red]\x1b[2J\u202e"
    column = "[blue]column\x1b[1m[/blue]\n"
    schema = pa.schema([("key", pa.string()), ("ts", pa.int64()), (column, pa.string())])
    side = Side(name, schema, keys=["key"], time="ts")
    rows = pa.table([pa.array(NASTY), pa.array(range(len(NASTY))), pa.array(NASTY)], schema=schema)
    with StateStore.open(tmp_path / "[i]state\x1b[5m", sides=[side]) as store:
        store.append(0, rows)
        store.remove(0, 10**9, 10**9 + 1)
        store.snapshot_epoch(1, meta={"\x1b[31m": "[b]\x1b", "nan": float("nan")})
    return tmp_path / "[i]state\x1b[5m"


def visible(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def test_hostile_names_and_values_are_shown_as_they_are_and_escaped(run: Run, nasty: Path) -> None:
    out = run("dump", newest_file(nasty), "--rows", 100).out + run("inspect", nasty).out + run("verify", nasty).out
    assert visible(out)
    for words in (
        "[bold red]markup[/bold red]",
        "\\x1b[31mred\\x1b[0m",
        "[red]side[/red]\\x1b[2J\\u202e",
        "[blue]column\\x1b[1m[/blue]\\n",
        ":smile:",
        "line\\nbreak\\r\\ttab",
        "[/]",
        "\\x9b31m",
        "\\x00nul",
        "''",
        "'NULL'",
        "[i]state\\x1b[5m",
    ):
        assert words in out


def test_hostile_values_in_json_are_exact_and_ascii(run: Run, nasty: Path) -> None:
    result = run("dump", newest_file(nasty), "--rows", 100, "--json")
    assert result.out.isascii()
    assert visible(result.out)
    assert sorted(row["values"]["key"] for row in result.json["rows"]["shown"]) == sorted(NASTY)
    told = run("inspect", nasty, "--json")
    assert visible(told.out)
    assert told.json["head"]["meta"] == {"\x1b[31m": "[b]\x1b", "nan": "nan"}


def test_hostile_key_on_the_command_line_is_found_and_escaped(run: Run, nasty: Path) -> None:
    result = run("dump", newest_file(nasty), "--key", NASTY[0])
    assert "Rows: 1 of 1 row with key \\x1b[31mred\\x1b[0m" in result.out
    assert visible(result.out)


def test_hostile_names_in_errors_are_escaped(run: Run, nasty: Path) -> None:
    damage(newest_file(nasty), 200)
    for result in (run("verify", nasty), run("dump", newest_file(nasty))):
        assert result.code == 1
        assert visible(result.out)
    result = run("dump", nasty)
    assert result.code == 2
    assert visible(result.err)


def test_names_of_junk_in_a_state_are_escaped(run: Run, state: Path) -> None:
    for directory in ("", "manifest", "sst", "pins", "merges"):
        for name in ("\x1b[31mred", "new\nline", "\u202eleft", "a~\x1b[2J~1", "[bold]x"):
            (state / directory / name).touch()
    for command in ("inspect", "verify", "doctor"):
        result = run(command, state)
        assert result.code == 0
        assert visible(result.out + result.err)


def _narrow_span(index: dict[str, Any]) -> None:
    index["runs"][0]["hashes"] = [2**63, 2**63 + 1]


def _no_time(index: dict[str, Any]) -> None:
    index["runs"][0]["ts"] = [-(10**40), 10**40]


def _buckets_far_away(index: dict[str, Any]) -> None:
    index["runs"][0]["buckets"] = [-(10**30), 10**30]


def _no_columns(index: dict[str, Any]) -> None:
    index["runs"][0]["columns"] = [17] * len(index["runs"][0]["columns"])


def _columns_elsewhere(index: dict[str, Any]) -> None:
    for column in index["runs"][0]["columns"]:
        if column:
            column["buffers"] = [None if b is None else [b[0] + 10**12, b[1]] for b in column["buffers"]]


def _swapped_sections(index: dict[str, Any]) -> None:
    run = index["runs"][0]
    run["hash"], run["id"] = run["id"], run["hash"]


@pytest.mark.parametrize("change", [_narrow_span, _no_columns, _columns_elsewhere, _swapped_sections])
def test_index_that_lies_with_right_checksums_is_reported(run: Run, state: Path, change: Any) -> None:
    file = newest_file(state)
    rewrite_index(file, change)
    result = run("dump", file, "--rows", 5000)
    assert result.code == 1
    assert "DAMAGED" in result.out
    assert run("dump", file, "--rows", 5000, "--json").json["checks"]["problems"]
    assert run("verify", state).code == 1  # the digest in the manifest is another


@pytest.mark.parametrize("change", [_no_time, _buckets_far_away])
def test_index_with_numbers_that_cannot_be_is_refused(run: Run, state: Path, change: Any) -> None:
    file = newest_file(state)
    rewrite_index(file, change)
    result = run("dump", file)
    assert (result.code, result.out) == (2, "")
    assert "damaged at byte" in result.err
    assert run("verify", state).code == 1


@pytest.mark.parametrize("change", [_narrow_span, _swapped_sections])
def test_state_that_lies_with_right_checksums_is_reported(run: Run, state: Path, change: Any) -> None:
    file = newest_file(state)
    rewrite_index(file, change)
    told = run("dump", file, "--json").json

    def adopt(body: dict[str, Any]) -> None:
        entry = next(entry for entry in body["added"] if entry[0] == file.name)
        entry[1], entry[2] = told["sizes"]["file_bytes"], told["digest"]

    rewrite_manifest(state, head(state), adopt)
    result = run("verify", state, "--json")
    assert (result.code, result.err) == (1, "")
    assert {problem["path"] for problem in result.json["problems"]} == {str(file)}


def test_manifest_with_an_unknown_side_is_an_error_in_words(run: Run, state: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        body["added"][-1][3][0][0] = 99

    rewrite_manifest(state, head(state), change)
    result = run("inspect", state)
    assert (result.code, result.out) == (2, "")
    assert "side 99" in result.err
    assert run("verify", state).code == 1
