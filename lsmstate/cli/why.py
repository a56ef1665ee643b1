"""`lsmstate why STATE --key KEY`: what became of the rows with a key."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from dataclasses import fields as fields_of
from typing import Any

from rich.console import Console

from iopool import LocalFileSystem
from lsmstate.cli.sstable_rows import key_arrays
from lsmstate.cli.terminal import Commands, console, fields, heading, write_json
from lsmstate.cli.values import plain_values
from lsmstate.cli.wording import safe, time_text
from lsmstate.errors import SchemaError
from lsmstate.join.asking import sides_of, why
from lsmstate.join.spec import SIDES
from lsmstate.join.why import Why


def add(commands: Commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "why",
        help="what became of the rows with a key: alive, matched, late, expired, or never seen",
        description="Tells for each row with a key whether it is alive, matched and since when, late, or expired by "
        "which watermark; from what the state holds, and has held in the epochs that are kept.",
    )
    parser.add_argument("state", metavar="STATE", help="the directory of a join (its state=), or of a join operator")
    parser.add_argument(
        "--key",
        action="append",
        required=True,
        metavar="KEY",
        help="the join key: VALUE; for several key columns VALUE,VALUE or --key NAME=VALUE for each",
    )
    parser.add_argument("--side", choices=SIDES, help="only rows of this side (default: both)")
    parser.add_argument("--epoch", type=int, metavar="N", help="as of this epoch (default: the newest)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what is known."""
    fs = LocalFileSystem()
    path = fs.resolve(arguments.state)
    answers = []
    for name, side in zip(SIDES, sides_of(fs, path), strict=True):
        if arguments.side in (None, name):
            arrays = key_arrays(side, arguments.key)
            if arrays is None:
                columns = ", ".join(f"{key} ({side.schema.field(key).type})" for key in side.keys)
                raise SchemaError(
                    f"the key of {name} is {columns}. Give --key VALUE, --key VALUE,VALUE or --key NAME=VALUE for each"
                )
            told = why(path, name, tuple(array[0] for array in arrays), arguments.epoch)
            answers.append({**_plain(told), "key": [plain_values(array)[0] for array in arrays]})
    report = {"schema": "lsmstate.why/1", "path": path, "sides": answers}
    if arguments.json:
        write_json(report)
    else:
        _show(console(), report)
    return 0


def _plain(told: Why) -> dict[str, Any]:
    """What is known as JSON, without the key."""
    rest = {field.name: getattr(told, field.name) for field in fields_of(told) if field.name != "key"}
    return {**rest, "rows": [asdict(fate) for fate in told.rows]}


def _show(out: Console, report: dict[str, Any]) -> None:
    first = report["sides"][0]
    heading(out, f"Why, in {report['path']}")
    fields(out, [("as of", f"epoch {first['epoch']}, watermark {time_text(first['watermark_us'])}")])
    for told in report["sides"]:
        out.print()
        for line in told["text"].splitlines():
            out.print(safe(line), markup=False, highlight=False, soft_wrap=True)
