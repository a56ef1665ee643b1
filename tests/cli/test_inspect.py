"""`lsmstate inspect`: what the manifests say, beside a writer or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lsmstate import StateStore
from tests.cli.conftest import Run
from tests.support.cli_state import ADS, CLICKS, EPOCHS, SECOND_US, START_US, ads, damage, head


def listing(state: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in state.rglob("*")}


def test_inspect_shows_identity_sides_epochs_buckets_and_files(run: Run, built: Path) -> None:
    result = run("inspect", built)
    assert (result.code, result.err) == (0, "")
    for words in (
        f"State {built}",
        "epoch 4 on line 1, publication 4",
        "2026-01-01T00:06:40Z",
        "6,000 rows in 4 files",
        "1 tombstone",
        "epochs 1 to 4",
        "key shop, number; time at; all rows kept; buckets of 1h",
        "key ad_id; time ts; rows kept 10m; buckets of 37s 500ms",
        "ad_id int64",
        "+1 -0",
        "Buckets of ads",
        "Files at epoch 4",
        '{"batch": 4}',
    ):
        assert words in result.out


def test_inspect_json_has_the_documented_parts(run: Run, built: Path) -> None:
    told = run("inspect", built, "--json").json
    assert {*told} == {
        *("schema", "path", "id", "sides", "head", "watermark_us", "rows", "file_bytes", "epochs", "buckets"),
        *("files", "tombstones", "pins", "candidates", "unreached", "compaction"),
    }
    assert told["schema"] == "lsmstate.inspect/1"
    assert told["compaction"] == {
        "most_runs": 4,
        "stored_rows": 6000,
        "space_amplification": 1.0,
        "next": "a unit of time has settled",
        "debt_rows": 1000,
        "notes": 0,
    }
    assert told["path"] == str(built)
    assert [(s["name"], s["rows"], s["retention_us"]) for s in told["sides"]] == [
        ("ads", 4000, 600 * SECOND_US),
        ("clicks", 2000, None),
    ]
    assert told["head"]["epoch"] == EPOCHS
    assert told["head"]["meta"] == {"batch": EPOCHS}
    assert told["watermark_us"] == START_US + 400 * SECOND_US
    assert [e["epoch"] for e in told["epochs"]] == [1, 2, 3, 4]
    assert [(e["files"], e["rows"], e["added_files"], e["removed_files"]) for e in told["epochs"]] == [
        (1, 1500, None, None),
        (2, 3000, 1, 0),
        (3, 4500, 1, 0),
        (4, 6000, 1, 0),
    ]
    assert sum(b["rows"] for b in told["buckets"]) == told["rows"] == 6000
    assert abs(sum(b["approx_bytes"] for b in told["buckets"]) - told["file_bytes"]) < 100
    assert told["file_bytes"] == sum(p.stat().st_size for p in (built / "sst").iterdir())
    assert [f["epochs"] for f in told["files"]] == [[1, 2, 3, 4], [2, 3, 4], [3, 4], [4]]
    assert [(t["side"], t["end_us"] - t["start_us"]) for t in told["tombstones"]] == [(0, 20 * SECOND_US)]
    assert (told["pins"], told["candidates"], told["unreached"]) == ([], [], [])


def test_inspect_changes_nothing(run: Run, built: Path) -> None:
    before = listing(built)
    run("inspect", built)
    assert listing(built) == before


def test_retired_buckets_are_marked(run: Run, state: Path) -> None:
    with StateStore.open(state) as store:
        store.advance_watermark(START_US + 800 * SECOND_US)
        store.snapshot_epoch(EPOCHS + 1)
    told = run("inspect", state, "--json").json
    assert {b["state"] for b in told["buckets"] if b["side"] == 0} == {"partly retired", "live"}
    assert {b["state"] for b in told["buckets"] if b["side"] == 1} == {"live"}


def test_readers_candidates_and_unreached_files_are_shown(run: Run, state: Path) -> None:
    with StateStore.open(state) as store, store.at_epoch(2):
        store.append(0, ads(900, 10))
        candidate = store.prepare(EPOCHS + 1)
        (state / "pins" / f"{candidate}~dead~7").touch()
        orphan = state / "sst" / "000000000002-000001-0123456789abcdef-000001.sst"
        orphan.write_bytes(b"torn")
        told = run("inspect", state, "--json").json
        human = run("inspect", state).out
    assert [pin["alive"] for pin in told["pins"] if pin["attempt"] == "dead"] == [False]
    assert [pin["alive"] for pin in told["pins"] if pin["attempt"] != "dead"] == [True]
    assert [(c["epoch"], c["name"]) for c in told["candidates"]] == [(EPOCHS + 1, candidate)]
    assert [(u["name"], u["bytes"]) for u in told["unreached"]] == [(orphan.name, 4)]
    for words in ("1 pin of living readers, and 1 pin of dead ones", candidate, orphan.name, "epoch 5"):
        assert words in human


def test_new_and_restored_states_can_be_inspected(run: Run, state: Path, tmp_path: Path) -> None:
    StateStore.open(tmp_path / "new", sides=[ADS, CLICKS]).close()
    assert "nothing was committed" in run("inspect", tmp_path / "new").out
    with StateStore.open(state) as store:
        store.restore(2)
    told = run("inspect", state, "--json").json
    assert (told["head"]["epoch"], told["head"]["line"]) == (2, 2)
    assert [u["epoch"] for u in told["unreached"]] == [3, 3, 4, 4] or told["unreached"]


def test_damaged_older_manifest_leaves_the_rest_readable(run: Run, state: Path) -> None:
    (older,) = (state / "manifest").glob("000000000002-*")
    damage(older, 150)
    result = run("inspect", state, "--json")
    assert result.code == 0
    assert [e["epoch"] for e in result.json["epochs"] if e["error"]] == [2]
    assert "DAMAGED" in run("inspect", state).out


def test_damaged_newest_manifest_is_one_line_and_exit_code_2(run: Run, state: Path) -> None:
    damage(state / "manifest" / head(state), 150)
    result = run("inspect", state)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "lsmstate verify" in result.err


def test_state_behind_a_link_is_found(run: Run, built: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(built)
    assert run("inspect", tmp_path / "link", "--json").json["path"] == str(built)
    assert run("verify", tmp_path / "link").code == 0


def test_what_is_no_state_is_refused_in_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, words in (("empty", "no STATE file"), ("file", "not a directory"), ("other", "nothing here")):
        for command in ("inspect", "verify"):
            result = run(command, tmp_path / name)
            assert (result.code, result.out) == (2, "")
            assert words in result.err


@pytest.mark.parametrize("width", ["80", "100", "120"])
def test_tables_fit_the_width_and_lose_nothing(
    run: Run, built: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    result = run("inspect", built)
    lines = [line for line in result.out.splitlines() if str(built) not in line]
    assert max(map(len, lines)) <= int(width)
    assert "…" not in result.out
    for file in os.listdir(built / "sst"):
        assert file in result.out


def test_narrow_terminal_cuts_no_number_short(run: Run, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    out = run("inspect", built).out
    assert "2026-01-01T00:06:40Z" in out
    assert "6,000" in out
    for file in os.listdir(built / "sst"):
        assert file in out
