"""Tools take a state with values that Arrow would not make itself for sound, and show them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsmstate import Options, StateStore
from lsmstate.cli.values import cell_text, plain_values
from tests.cli.conftest import Run
from tests.support.cli_state import newest_file
from tests.support.odd_values import FLAT, ODD, rows_of, side_of

CASES = [pytest.param(array, False, id=name) for name, array in ODD.items()]
CASES += [pytest.param(FLAT[name], True, id=f"{name} as key") for name in ("string", "time64", "decimal128")]


@pytest.mark.parametrize(("array", "as_key"), CASES)
def test_tools_find_a_state_sound_and_show_its_values(run: Run, tmp_path: Path, array: pa.Array, as_key: bool) -> None:
    state, side = tmp_path / "state", side_of(array, as_key=as_key)
    with StateStore.open(str(state), [side], Options(durability="wal")) as store:
        store.append(0, rows_of(side, array))
        store.snapshot_epoch(1)
        store.append(0, rows_of(side, array))  # stays in the log
    for command in ("verify", "doctor", "inspect"):
        told = run(command, state)
        assert (told.code, told.err) == (0, ""), told.out
    told = run("dump", newest_file(state), "--json")
    assert (told.code, told.err) == (0, "")
    assert told.json["checks"]["problems"] == told.json["rows"]["unreadable"] == []
    values = {row["values"]["k"]: row["values"]["v"] for row in told.json["rows"]["shown"]}
    assert [values[number] for number in range(3)] == plain_values(array)
    assert run("dump", newest_file(state)).code == 0


SHOWN = {
    "string": r"\xff\xfeA",
    "time32": "90000 s",
    "time64": "86400000001 us",
    "date64": "1970-01-01T00:00:00.005",
    "decimal128": "1000000000",
}


@pytest.mark.parametrize(("name", "text"), SHOWN.items(), ids=SHOWN)
def test_value_that_arrow_would_not_make_has_a_form(name: str, text: str) -> None:
    assert cell_text(plain_values(FLAT[name])[1]) == text
