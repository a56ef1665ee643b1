"""Defects that are planted on purpose still fit the code, and the suites catch them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.defects import DEFECTS, Defect

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_defect_fits_the_code_once(defect: Defect) -> None:
    assert (ROOT / defect.path).read_text().count(defect.old) == 1
    assert defect.old != defect.new
    assert (ROOT / defect.tests[0]).is_file()


def test_manifest_reader_and_spark_task_have_defects() -> None:
    assert {"manifest", "reader", "Spark task"} <= {defect.where for defect in DEFECTS.values()}
    assert all(defect.tests[0].startswith("tests/spark") == defect.spark for defect in DEFECTS.values())


def test_defect_in_the_reader_is_caught() -> None:
    command = [sys.executable, "-m", "tests.planted", "time bound of the reader"]
    quiet = {name: value for name, value in os.environ.items() if name != "LSMSTATE_TEST_FIGURES"}  # it is one of many
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("caught: reader")
