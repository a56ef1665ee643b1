"""Typed keys: text that becomes a value of any type, and questions about states whose keys are no numbers or texts."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsmstate.cli.key_text import key_array
from lsmstate.cli.values import cell_text, plain_values
from lsmstate.hashing.sameness import same_keys
from tests.cli.conftest import Run
from tests.support.key_join import by_join, key_case
from tests.support.key_values import FLAT, random_key

NOT_A_TIME = -(2**63)  # as numpy prints it


@pytest.mark.parametrize("kind", FLAT, ids=str)
def test_what_is_printed_can_be_typed_again(kind: pa.DataType) -> None:
    column = random_key(random.Random(8), kind, 60, few=kind not in (pa.string(), pa.large_string())).drop_null()
    if pa.types.is_timestamp(kind):
        column = column.filter(pa.array([scalar.value != NOT_A_TIME for scalar in column]))
    texts = [cell_text(value) if isinstance(value, bool) else str(value) for value in plain_values(column)]
    typed = pa.concat_arrays([key_array(text, kind) for text in texts])
    assert same_keys(typed, column).all()


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("2026-01-01", pa.timestamp("us"), datetime(2026, 1, 1)),
        ("2026-01-01T02:00:00+02:00", pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T00:00", pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC)),
        ("-1.50", pa.decimal128(9, 2), Decimal("-1.5")),
        ("ff00", pa.binary(), b"\xff\0"),
        ("[1, null, 3]", pa.list_(pa.int8()), [1, None, 3]),
        ('["0xff", "00"]', pa.list_(pa.binary()), [b"\xff", b"\0"]),
        ('{"b": [true], "a": 1.10}', pa.struct([("a", pa.decimal128(5, 1)), ("b", pa.list_(pa.bool_()))]),
         {"a": Decimal("1.1"), "b": [True]}),
    ],
)  # fmt: skip
def test_typed_key_becomes_a_value(text: str, kind: pa.DataType, value: Any) -> None:
    assert key_array(text, kind).to_pylist() == [value]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", pa.int32()),
        ("300", pa.int8()),
        ("1.255", pa.decimal128(9, 2)),
        ("one", pa.decimal128(9, 2)),
        ("yes", pa.bool_()),
        ("now", pa.timestamp("us")),
        ("today", pa.date32()),
        ("2026-02-30", pa.date32()),
        ("2026-01-01T00:00:00Z", pa.timestamp("us")),
        ("25:00:00", pa.time64("us")),
        ("0xf", pa.binary()),
        ("0xff", pa.binary(2)),
        ("1", pa.list_(pa.int8())),
        ("[1", pa.list_(pa.int8())),
        ("[[1]]", pa.list_(pa.int8())),
        ("[" * 100_000, pa.list_(pa.int8())),
        ('{"b": 1}', pa.struct([("a", pa.int8())])),
    ],
)
def test_text_that_is_no_value_is_refused(text: str, kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match=r".+"):
        key_array(text, kind)


def test_why_knows_rows_by_a_decimal_and_a_time(run: Run, tmp_path: Path) -> None:
    rng = random.Random(9)
    case = key_case(rng, [pa.decimal128(9, 2), pa.date32()], "left")
    by_join(case, rng, tmp_path / "state")
    row = next(row for row in range(60) if all(column[row].is_valid for column in case.sides[0].columns))
    key = [plain_values(column.slice(row, 1))[0] for column in case.sides[0].columns[:2]]
    told = run("why", tmp_path / "state", f"--key={key[0]},{key[1]}", "--side", "left", "--json")
    assert told.code == 0, told.err
    (side,) = told.json["sides"]
    assert side["key"] == key
    assert case.sides[0].column("ts")[row].as_py() in [fate["ts_us"] for fate in side["rows"]]
    wrong = run("why", tmp_path / "state", "--key", "0.001,1970-01-02", "--side", "left")
    assert wrong.code == 2
    assert "the key of left is l0 (decimal128(9, 2)), l1 (date32[day])" in " ".join(wrong.err.split())
