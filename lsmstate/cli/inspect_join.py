"""`lsmstate inspect` of a join's state: what it joins, how far it is, and what each partition holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from lsmstate.cli.terminal import Cell, fields, heading, table
from lsmstate.cli.wording import columns_text, count_text, epochs_text, kept_text, size_text, span_text, time_text

_PARTITIONS_SHOWN = 64
_NAMED = 16  # partitions in a sentence
_HOWS = {
    "inner": "pairs",
    "left": "pairs, and left rows alone",
    "right": "pairs, and right rows alone",
    "full": "pairs, and rows of both sides alone",
    "left_semi": "left rows that have a partner",
    "left_anti": "left rows that have none",
}


def show(out: Console, report: dict[str, Any]) -> None:
    """Prints the report of a join."""
    heading(out, f"Join {report['job']} in {report['path']}")
    fields(out, _summary(report))
    heading(out, "Sides")
    fields(out, [pair for side in report["sides"] for pair in _side_pairs(side)])
    if report["epochs"]:
        heading(out, "Epochs that can be read: lsmstate.read_state(path, epoch=..., side=...)")
        table(
            out,
            (">epoch", ">line", ">batch", "=begun", "=watermark", ">run"),
            [_epoch_cells(e) for e in report["epochs"]],
        )
    if report["by_partition"]:
        heading(out, f"Partitions at epoch {report['newest']['epoch']}, each a range of key hashes")
        columns = (">partition", ">left\nrows", ">right\nrows", ">files", ">size", "=event times\nfirst/last")
        table(out, columns, _partition_rows(report["by_partition"]))


def _summary(report: dict[str, Any]) -> list[tuple[str, str]]:
    left, right = report["sides"][:2]
    equal = [f"left {one} = right {other}" for one, other in zip(left["keys"], right["keys"], strict=False)]
    pairs = [
        ("joins", f"{_HOWS[report['how']]}: {' and '.join(equal)}, {_meeting(report, left['time'], right['time'])}"),
        ("partitions", f"{report['partitions']:,}"),
        ("newest", _newest_text(report["newest"])),
        ("watermark", time_text(report["watermark_us"])),
        ("holds", _holds_text(report)),
        ("readable", _with_batches(report["epochs"])),
        ("under way", _under_way_text(report["under_way"], report["partitions"])),
        ("runs", _runs_text(report["runs"])),
    ]
    line = report["line"]
    if line["starts_from"] is not None:
        pairs.insert(3, ("line", _line_text(line)))
    if report["left_behind"]:
        told = [f"{epochs_text(each['epochs'])} of line {each['line']}" for each in report["left_behind"]]
        pairs.append(("left behind", f"{', '.join(told)}: what came after the epoch that a newer line starts from"))
    damaged = [epoch["epoch"] for epoch in report["epochs"] if epoch["error"] is not None]
    if damaged:
        pairs.append(("DAMAGED", f"the barrier of {epochs_text(damaged)}: see `lsmstate verify`"))
    return pairs


def _meeting(report: dict[str, Any], left: str, right: str) -> str:
    low, high = (span_text(report["within"][name]) for name in ("lower_us", "upper_us"))
    if report["match"] == "instant":
        return f"with left {left} = right {right}"
    if report["match"] == "asof":
        return f"the latest right {right} at or before left {left}, from {low} on"
    return f"with right {right} - left {left} from {low} to {high}"


def _newest_text(newest: dict[str, Any] | None) -> str:
    if newest is None:
        return "none yet: no epoch is complete"
    return f"epoch {newest['epoch']}, which is batch {newest['batch']} of Spark, begun {time_text(newest['begun_us'])}"


def _line_text(line: dict[str, Any]) -> str:
    starts = line["starts_from"]
    told = f"{line['number']}, which starts from epoch {starts['epoch']} of line {starts['line']}"
    return f"{told}, made {time_text(starts['made_us'])}: {starts['why']}"


def _holds_text(report: dict[str, Any]) -> str:
    rows = count_text(report["rows"], "row")
    return f"{rows} in {count_text(report['files'], 'file')}, {size_text(report['file_bytes'])}"


def _with_batches(epochs: Sequence[dict[str, Any]]) -> str:
    """The epochs that can be read, with Spark's batches, query by query."""
    sound = [epoch for epoch in epochs if epoch["error"] is None]
    if not sound:
        return epochs_text([])
    parts = []
    for line in sorted({epoch["line"] for epoch in sound}):
        mine = [epoch for epoch in sound if epoch["line"] == line]
        batches = epochs_text([epoch["batch"] for epoch in mine], "batch", "batches")
        parts.append(f"{epochs_text([epoch['epoch'] for epoch in mine])} ({batches})")
    return "; ".join(parts)


def _under_way_text(under_way: dict[str, Any] | None, partitions: int) -> str:
    if under_way is None:
        return "nothing"
    waiting = ", ".join(map(str, under_way["waiting"][:_NAMED]))
    more = len(under_way["waiting"]) - _NAMED
    told = (
        f"epoch {under_way['epoch']} (batch {under_way['batch']}), begun {time_text(under_way['begun_us'])}: finished "
        f"in {len(under_way['finished'])} of {count_text(partitions, 'partition')}, not yet in {waiting}"
    )
    told += f" and {more:,} more" if more > 0 else ""
    if under_way["damaged"]:
        told += f"; {count_text(len(under_way['damaged']), 'manifest')} damaged or torn: see `lsmstate verify`"
    return told


def _runs_text(runs: dict[str, Any]) -> str:
    if runs["error"] is not None:
        return f"{runs['count']:,} so far; the last one is DAMAGED: see `lsmstate verify`"
    if not runs["count"]:
        return "none yet"
    return f"{runs['count']:,} so far; the last one is run {runs['run']} of query {runs['query']}"


def _side_pairs(side: dict[str, Any]) -> list[tuple[str, str]]:
    told = f"{count_text(side['rows'], 'row')}, about {size_text(side['approx_bytes'])}"
    if side["rows"]:
        told += f", from {time_text(side['min_ts_us'])} to {time_text(side['max_ts_us'])}"
    pairs = [(side["name"], told), ("", kept_text(side)), ("", columns_text(side))]
    until = side["retired_until_us"]
    if side["rows"] and until is not None and until >= side["min_ts_us"]:
        pairs.insert(1, ("", f"rows up to {time_text(until)} are retired: invisible, and gone with their files"))
    return pairs


def _epoch_cells(epoch: dict[str, Any]) -> list[Cell]:
    numbers = [str(epoch["epoch"]), str(epoch["line"]), str(epoch["batch"])]
    if epoch["error"] is not None:
        return [*numbers, "DAMAGED: see `lsmstate verify`", "", ""]
    return [*numbers, time_text(epoch["begun_us"]), time_text(epoch["watermark_us"]), str(epoch["run"])]


def _partition_rows(partitions: Sequence[dict[str, Any]]) -> list[list[Cell]]:
    rows: list[list[Cell]] = [
        [str(each["partition"]), *_sums([each]), _range(each)] for each in partitions[:_PARTITIONS_SHOWN]
    ]
    rest = partitions[_PARTITIONS_SHOWN:]
    if rest:
        rows.append([f"{len(rest):,} more", *_sums(rest), "see --json"])
    return rows


def _sums(partitions: Sequence[dict[str, Any]]) -> list[Cell]:
    names = ("left_rows", "right_rows", "files", "bytes")
    left, right, files, size = (sum(each[name] for each in partitions) for name in names)
    return [f"{left:,}", f"{right:,}", f"{files:,}", size_text(size)]


def _range(partition: dict[str, Any]) -> Cell:
    if partition["min_ts_us"] is None:
        return "none"
    return (time_text(partition["min_ts_us"]), time_text(partition["max_ts_us"]))
