"""docs/GUARANTEES.md: a line for everything that is promised, and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "GUARANTEES.md").read_text()
NAMED = re.findall(r"`([a-z_0-9/]+\.py)::(test_[a-z_0-9]+)`", TEXT)
ROWS = {"A": 13, "B": 8, "C": 6, "D": 13}


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("row", [f"{letter}{number}" for letter, most in ROWS.items() for number in range(1, most + 1)])
def test_every_row_has_a_line_with_a_promise_and_a_test(row: str) -> None:
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| {row} |")]
    _, _, promise, held, _ = line.split("|")
    assert len(promise.split()) > 5
    assert "::test_" in held


def test_every_named_test_exists() -> None:
    assert len(NAMED) > 100
    assert [f"{path}::{name}" for path, name in NAMED if name not in functions_in(path)] == []
