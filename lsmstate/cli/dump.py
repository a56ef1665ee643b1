"""`lsmstate dump FILE`: an SSTable on its own, wherever it lies and whatever it is called now."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from iopool import FileSystem, LocalFileSystem
from lsmstate.cli.sstable_report import describe
from lsmstate.cli.sstable_rows import pick_rows
from lsmstate.cli.terminal import Cell, Commands, console, fields, heading, table, write_json
from lsmstate.cli.values import cell_text
from lsmstate.cli.wording import count_text, percent_text, size_text, span_text, time_text
from lsmstate.errors import NotAStateError
from lsmstate.sstable.format import MAGIC
from lsmstate.sstable.reader import SSTable

_PROBLEMS_SHOWN = 20


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "dump",
        help="an SSTable: header, index, filters, statistics, checks, rows",
        description="Shows one SSTable, also one that was copied or renamed, and checks every byte of it. "
        "The exit code is 1 if it is damaged.",
    )
    parser.add_argument("file", metavar="FILE", help="a file from the sst directory of a state")
    parser.add_argument("--rows", type=_count, default=10, metavar="N", help="show at most N rows (default: 10)")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="KEY",
        help="show rows with this join key: VALUE; for several key columns VALUE,VALUE or --key NAME=VALUE for each",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the report; 1 if the file is damaged."""
    fs = LocalFileSystem()
    path = fs.resolve(arguments.file)
    _check_kind(fs, path)
    opened = SSTable(fs, path)
    report = describe(opened)
    report["rows"] = pick_rows(opened, arguments.rows, arguments.key)
    if arguments.json:
        write_json(report)
    else:
        _show(console(), report)
    return 1 if report["checks"]["problems"] else 0


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; it is a whole number of rows, such as 10") from None
    if number < 0:
        raise argparse.ArgumentTypeError("a number of rows cannot be negative")
    return number


def _check_kind(fs: FileSystem, path: str) -> None:
    """Says plainly what a path is that cannot be an SSTable."""
    kind = fs.kind(path)
    if kind == "dir":
        raise NotAStateError(f"{path}: is a directory, not an SSTable; `lsmstate inspect` shows a whole state")
    if kind == "file" and MAGIC not in (bytes((data := fs.map(path))[:8]), bytes(data[-80:-72])):
        raise NotAStateError(f"{path}: is not an SSTable of lsmstate")


def _show(out: Console, report: dict[str, Any]) -> None:
    _show_file(out, report)
    for side in report["sides"]:
        heading(out, f"Columns of {side['name']}")
        table(out, ("name", "role", "type", ">nulls", ">size", ">bytes/row"), _column_rows(side))
    for side in report["sides"]:
        heading(out, f"Runs of {side['name']}: rows of a time range, sorted by (hash, time, id)")
        runs = [run for run in report["runs"] if run["side"] == side["number"]]
        table(out, (">#", "=buckets from/to", "=times first/last", ">rows", ">ids"), _run_rows(runs))
    heading(out, "Sections and filters of each run")
    columns = (">#", "=hashes\nfrom/to", ">bloom\nfilter", ">bits\nset", ">false\nhits", ">directory")
    table(out, (*columns, ">hash,\ntime, id", ">other\ncolumns"), _section_rows(report))
    _show_checks(out, report["checks"])
    _show_rows(out, report)


def _show_file(out: Console, report: dict[str, Any]) -> None:
    sizes, keys = report["sizes"], report["key_filter"]
    name = "of this name" if report["has_own_name"] else "of another name: the file was renamed or copied"
    key_filter = "none: the file holds too many keys for one"
    if keys["keys"] is not None:
        key_filter = f"{count_text(keys['keys'], 'key')} [side|bucket], {size_text(keys['bytes'])}, "
        key_filter += f"{percent_text(keys['error_rate'])} false hits by design"
    elif keys["exists"]:
        key_filter = "DAMAGED: it cannot be read"
    heading(out, f"SSTable {report['path']}")
    pairs = [
        ("format", f"{report['format']}, blocks of {size_text(report['block_bytes'])}"),
        ("uid", f"{report['uid']} ({name})"),
        ("digest", f"{report['digest']} (of the footer: manifests know the file by it)"),
        ("epoch", f"written for epoch {report['epoch']}"),
        ("size", f"{size_text(sizes['file_bytes'])} ({sizes['file_bytes']:,} bytes)"),
        ("", f"= data {sizes['data_bytes']:,} + index {sizes['index_bytes']:,} + sums {sizes['sums_bytes']:,}"),
        ("", f"+ key filter {sizes['filter_bytes']:,} + footer {sizes['footer_bytes']:,}"),
        ("key filter", key_filter),
    ]
    for side in report["sides"]:
        told = (
            f"{count_text(side['rows'], 'row')} in {count_text(side['runs'], 'run')}, key {', '.join(side['keys'])}, "
        )
        told += (
            f"time {side['time']}, kept {span_text(side['retention_us'])}, buckets of {span_text(side['bucket_us'])}"
        )
        pairs.append((f"side {side['number']}", f"{side['name']}: {told}"))
    fields(out, pairs)


def _column_rows(side: dict[str, Any]) -> list[list[Cell]]:
    return [
        [
            column["name"],
            column["role"] or "",
            column["type"] + ("" if column["nullable"] else " not null"),
            "?" if column["nulls"] is None else f"{column['nulls']:,}",
            "?" if column["bytes"] is None else size_text(column["bytes"]),
            "?" if column["bytes"] is None or not side["rows"] else f"{column['bytes'] / side['rows']:.1f}",
        ]
        for column in side["columns"]
    ]


def _run_rows(runs: list[dict[str, Any]]) -> list[list[Cell]]:
    return [
        [
            str(run["number"]),
            (time_text(run["start_us"]), time_text(run["end_us"] + 1)),
            (time_text(run["min_ts_us"]), time_text(run["max_ts_us"])),
            f"{run['rows']:,}",
            (f"{run['min_id']:,}", f"{run['max_id']:,}"),
        ]
        for run in runs
    ]


def _section_rows(report: dict[str, Any]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for run in report["runs"]:
        bloom, size = run["bloom"], {name: length for name, (_, length) in run["sections"].items()}
        rows.append(
            [
                str(run["number"]),
                (run["min_hash"], run["max_hash"]),
                "damaged" if bloom["bits"] is None else size_text(bloom["bits"] // 8),
                percent_text(bloom["fill"]),
                percent_text(bloom["false_positive_rate"]),
                size_text(size["directory"]),
                size_text(size["hash"] + size["time"] + size["id"]),
                size_text(sum(part or 0 for part in run["columns_bytes"].values())),
            ]
        )
    return rows


def _show_checks(out: Console, checks: dict[str, Any]) -> None:
    heading(out, "Checks")
    good = checks["blocks"] - len(checks["bad_blocks"])
    pairs = [("blocks", f"{good:,} of {count_text(checks['blocks'], 'block')} match their checksums")]
    problems = checks["problems"]
    if not problems:
        pairs.append(("OK", "order, bounds, hashes, directory and filters of every run agree with its rows"))
    pairs += [("DAMAGED", problem) for problem in problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        pairs.append(("", f"and {len(problems) - _PROBLEMS_SHOWN:,} more; --json lists all"))
    fields(out, pairs)


def _show_rows(out: Console, report: dict[str, Any]) -> None:
    told = report["rows"]
    shown = told["shown"]
    what = f"with key {', '.join(told['key'])}" if told["key"] else "in the file"
    heading(out, f"Rows: {len(shown):,} of {count_text(told['found'], 'row')} {what}")
    fields(out, [(f"run {bad['run']}", f"its rows cannot be read: {bad['error']}") for bad in told["unreadable"]])
    for side in report["sides"]:
        mine = [row for row in shown if row["side"] == side["number"]]
        if not mine:
            continue
        names = [column["name"] for column in side["columns"]]
        cells = [[str(row["run"]), str(row["id"]), *(cell_text(row["values"][n]) for n in names)] for row in mine]
        out.print()
        if _width(names, cells) <= out.width:
            table(out, ("run", "id", *names), cells)
        else:
            table(out, ("run", "id", "column", "value"), _as_records(names, cells))


def _width(names: list[str], cells: list[list[str]]) -> int:
    """About how wide a table of these cells would be."""
    heads = ["run", "id", *names]
    return sum(2 + max(len(head), *(len(row[at]) for row in cells)) for at, head in enumerate(heads))


def _as_records(names: list[str], cells: list[list[str]]) -> list[list[Cell]]:
    """One line for each column of each row, for rows that are too wide to stand side by side."""
    return [
        [row[0] if at == 0 else "", row[1] if at == 0 else "", name, row[at + 2]]
        for row in cells
        for at, name in enumerate(names)
    ]
