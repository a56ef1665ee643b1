"""`lsmstate inspect STATE`: what a state holds, by epoch, side, time and file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from iopool import LocalFileSystem
from lsmstate.cli import inspect_join, join_report
from lsmstate.cli.state_report import describe
from lsmstate.cli.terminal import Cell, Commands, console, fields, heading, note_partition, table, write_json
from lsmstate.cli.wording import columns_text, count_text, cut, epochs_text, kept_text, size_text, span_text, time_text
from lsmstate.join.home import home_of, is_home

_BUCKETS_SHOWN = 24  # of a side
_FILES_SHOWN = 40
_META_MAX = 200


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "inspect",
        help="a state or a join: epochs, sides, buckets, files, sizes, watermark",
        description="Shows what a state holds. Reads manifests only, and may run beside a job that writes.",
    )
    parser.add_argument("state", metavar="STATE", help="the directory of a state, or of a join (its state=)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the report."""
    fs, out = LocalFileSystem(), console()
    path = fs.resolve(arguments.state)
    join = is_home(fs, path)
    report = join_report.describe(fs, path) if join else describe(fs, path)
    if arguments.json:
        write_json(report)
    elif join:
        inspect_join.show(out, report)
    else:
        _show(out, report)
        home = home_of(fs, path)
        if home is not None:
            note_partition(out, "inspect", home)
    return 0


def _show(out: Console, report: dict[str, Any]) -> None:
    _show_summary(out, report)
    heading(out, "Sides")
    fields(out, [pair for side in report["sides"] for pair in _side_pairs(side)])
    heading(out, "Epochs that can be opened, restored and branched")
    columns = (">epoch", ">line", ">rows", ">size", "=watermark", ">files", ">change")
    table(out, columns, [_epoch_cells(epoch) for epoch in report["epochs"]])
    for side in report["sides"]:
        heading(out, f"Buckets of {side['name']} at epoch {report['head']['epoch']}, as runs cover them")
        mine = [bucket for bucket in report["buckets"] if bucket["side"] == side["number"]]
        table(out, ("=from", ">span", ">rows", ">runs", ">about", "state"), _bucket_rows(mine))
    heading(out, f"Files at epoch {report['head']['epoch']}")
    table(out, ("=name", ">size", ">rows", ">epochs"), _file_rows(report["files"]))
    if report["tombstones"]:
        heading(out, "Tombstones: rows with from <= time < to that are older than the id are removed")
        sides = {side["number"]: side["name"] for side in report["sides"]}
        table(out, ("side", "=from", "=to", ">id"), [_tombstone_cells(t, sides) for t in report["tombstones"]])
    _show_beside(out, report)


def _show_summary(out: Console, report: dict[str, Any]) -> None:
    head, epochs = report["head"], [epoch["epoch"] for epoch in report["epochs"]]
    heading(out, f"State {report['path']}")
    newest = "none yet: nothing was committed"
    if head["publication"]:
        newest = f"epoch {head['epoch']} on line {head['line']}, publication {head['publication']}"
    pairs = [
        ("id", report["id"]),
        ("newest", newest),
        ("watermark", time_text(report["watermark_us"])),
        (
            "holds",
            f"{count_text(report['rows'], 'row')} in {count_text(len(report['files']), 'file')}, "
            f"{size_text(report['file_bytes'])}, {count_text(len(report['tombstones']), 'tombstone')}",
        ),
        ("compaction", _compaction_text(report["compaction"])),
        ("retains", epochs_text(epochs)),
        ("readers", _readers_text(report["pins"])),
        ("prepared", epochs_text(c["epoch"] for c in report["candidates"]) if report["candidates"] else "nothing"),
        ("unreached", _unreached_text(report["unreached"])),
    ]
    if head["meta"]:
        pairs.append(("meta", cut(json.dumps(head["meta"], sort_keys=True), _META_MAX)))
    fields(out, pairs)


def _compaction_text(told: dict[str, Any]) -> str:
    waits = "nothing is to be merged"
    if told["next"] is not None:
        waits = f"to be merged next: {count_text(told['debt_rows'], 'row')} ({told['next']})"
    notes = f"; {count_text(told['notes'], 'merge')} for the next epoch to adopt" if told["notes"] else ""
    runs, stored = count_text(told["most_runs"], "run"), f"{told['space_amplification']:.2f}"
    return f"a probe looks into {runs} at most; files hold {stored} rows for each that is read; {waits}{notes}"


def _readers_text(pins: Sequence[dict[str, Any]]) -> str:
    living = sum(pin["alive"] is not False for pin in pins)
    dead = len(pins) - living
    told = f"{count_text(living, 'pin')} of living readers" if living else "none"
    return f"{told}, and {count_text(dead, 'pin')} of dead ones, to be removed" if dead else told


def _unreached_text(unreached: Sequence[dict[str, Any]]) -> str:
    if not unreached:
        return "nothing"
    size = size_text(sum(entry["bytes"] or 0 for entry in unreached))
    return f"{count_text(len(unreached), 'file')}, {size}: left by attempts; removed once their epochs are retired"


def _side_pairs(side: dict[str, Any]) -> list[tuple[str, str]]:
    rows = f"{count_text(side['rows'], 'row')} in {count_text(side['runs'], 'run')}"
    if side["rows"]:
        rows += f", from {time_text(side['min_ts_us'])} to {time_text(side['max_ts_us'])}"
    return [
        (f"{side['number']} {side['name']}", rows),
        ("", kept_text(side)),
        ("", columns_text(side)),
    ]


def _epoch_cells(epoch: dict[str, Any]) -> list[Cell]:
    if epoch["error"] is not None:
        return [str(epoch["epoch"]), "", "", "", "DAMAGED: see `lsmstate verify`", "", ""]
    change = "" if epoch["added_files"] is None else f"+{epoch['added_files']:,} -{epoch['removed_files']:,}"
    return [
        str(epoch["epoch"]),
        str(epoch["line"]),
        f"{epoch['rows']:,}",
        size_text(epoch["bytes"]),
        time_text(epoch["watermark_us"]),
        f"{epoch['files']:,}",
        change,
    ]


def _bucket_rows(buckets: Sequence[dict[str, Any]]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    older = buckets[:-_BUCKETS_SHOWN]
    if older:
        rows.append([f"{len(older):,} older (see --json)", "", *_bucket_sums(older), ""])
    for bucket in buckets[-_BUCKETS_SHOWN:]:
        span = span_text(bucket["end_us"] + 1 - bucket["start_us"])
        rows.append([time_text(bucket["start_us"]), span, *_bucket_sums([bucket]), bucket["state"]])
    return rows


def _bucket_sums(buckets: Sequence[dict[str, Any]]) -> list[Cell]:
    rows, runs, size = (sum(bucket[name] for bucket in buckets) for name in ("rows", "runs", "approx_bytes"))
    return [f"{rows:,}", f"{runs:,}", size_text(size)]


def _file_rows(files: Sequence[dict[str, Any]]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    older = files[:-_FILES_SHOWN]
    if older:
        size, count = sum(file["bytes"] for file in older), sum(file["rows"] for file in older)
        rows.append([f"{len(older):,} older (see --json)", size_text(size), f"{count:,}", ""])
    for file in files[-_FILES_SHOWN:]:
        first, last = file["epochs"][0], file["epochs"][-1]
        epochs = str(first) if first == last else f"{first} to {last}"
        rows.append([file["name"], size_text(file["bytes"]), f"{file['rows']:,}", epochs])
    return rows


def _tombstone_cells(tombstone: dict[str, Any], sides: dict[int, str]) -> list[Cell]:
    side = sides.get(tombstone["side"], str(tombstone["side"]))
    return [side, time_text(tombstone["start_us"]), time_text(tombstone["end_us"]), f"{tombstone['id']:,}"]


def _show_beside(out: Console, report: dict[str, Any]) -> None:
    if report["candidates"]:
        heading(out, "Prepared and not committed: commit(epoch) publishes one, abort(epoch) forgets it")
        table(out, (">epoch", "=candidate"), [[str(c["epoch"]), c["name"]] for c in report["candidates"]])
    if report["unreached"]:
        heading(out, "Files that no retained epoch reaches")
        rows = [[u["name"], "?" if u["bytes"] is None else size_text(u["bytes"])] for u in report["unreached"]]
        table(out, ("=name", ">size"), rows[:_FILES_SHOWN])
