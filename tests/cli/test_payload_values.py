"""Values of every type on the terminal and as JSON, also those that Python has no type for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iopool import LocalFileSystem
from lsmstate.cli.values import cell_text, plain_values
from tests.cli.conftest import Run
from tests.support.cli_state import newest_file
from tests.support.nested_store import SIDES, build

MAP = pa.map_(pa.string(), pa.list_(pa.int8()))
NAN = float("nan")
SHOWN: list[tuple[pa.DataType, list[Any], list[Any], str]] = [
    (pa.list_(pa.int64()), [[1, None], None, []], [[1, None], None, []], "[1, null]"),
    (pa.list_(pa.float32(), 2), [[1.5, NAN], None], [[1.5, "nan"], None], '[1.5, "nan"]'),
    (MAP, [[("a", [1]), ("b", None)], None], [[{"key": "a", "value": [1]}, {"key": "b", "value": None}], None], ""),
    (
        pa.struct([("a", pa.binary()), ("b", pa.date32())]),
        [{"a": b"\x01", "b": 0}],
        [{"a": "0x01", "b": "1970-01-01"}],
        "",
    ),
    (pa.struct([]), [{}, None], [{}, None], "{}"),
    (pa.null(), [None], [None], "NULL"),
    (pa.binary(0), [b"", None], ["0x", None], "0x"),
    (pa.time64("ns"), [1, 3_723_000_001_000, None], ["00:00:00.000000001", "01:02:03.000001", None], ""),
    (pa.time32("s"), [86_399, -1], ["23:59:59", "-1 s"], "23:59:59"),
    (pa.list_(pa.timestamp("s", "UTC")), [[2**40]], [["36812-02-20T00:36:16Z"]], '["36812-02-20T00:36:16Z"]'),
    (pa.list_(pa.string()), [["a\x1b[31m\u202e"]], [["a\x1b[31m\u202e"]], '["a\\u001b[31m\\u202e"]'),
]


@pytest.mark.parametrize(("kind", "values", "plain", "cell"), SHOWN, ids=[str(case[0]) for case in SHOWN])
def test_values_inside_of_others_have_a_form(kind: pa.DataType, values: Any, plain: Any, cell: str) -> None:
    array = pa.array([None, *values, None], kind).slice(1, len(values))
    assert plain_values(array) == plain
    if cell:
        assert cell_text(plain_values(array)[0]) == cell


def test_fields_of_one_name_are_all_shown() -> None:
    kind = pa.struct([("a", pa.int8()), ("a", pa.int8())])
    array = pa.Array.from_buffers(kind, 1, [None], 0, 0, [pa.array([1], pa.int8()), pa.array([2], pa.int8())])
    assert plain_values(array) == [{"a#0": 1, "a#1": 2}]


def test_dump_inspect_and_verify_show_a_state_of_every_type(run: Run, tmp_path: Path) -> None:
    build(LocalFileSystem(), str(tmp_path / "state"))
    file = newest_file(tmp_path / "state")
    told = run("dump", file, "--json", "--rows", 100).json
    assert told["format"] == 2
    assert told["checks"]["problems"] == []
    assert [len(side["columns"]) for side in told["sides"]] == [len(side.schema) for side in SIDES]
    assert all(
        column["nulls"] is not None and column["bytes"] > 0 for side in told["sides"] for column in side["columns"]
    )
    rows = [row["values"] for row in told["rows"]["shown"]]
    assert len(rows) == 8
    texts = run("dump", file)
    assert (texts.code, texts.err) == (0, "")
    assert "map<string, timestamp[us, tz=UTC]>" in texts.out.replace("\n", "")
    assert run("dump", file, "--key", 0, "--json").json["rows"]["found"] > 0
    assert run("inspect", tmp_path / "state").code == 0
    assert run("inspect", tmp_path / "state", "--json").json["sides"]
    assert run("verify", tmp_path / "state").code == 0
