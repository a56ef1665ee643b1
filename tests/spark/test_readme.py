"""The README's programs run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.spark
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_program_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS[number])
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if "stream_join" in PROGRAMS[number]:
        *epochs, last = done.stdout.splitlines()
        assert len(epochs) >= 2
        assert any(int(epoch.split(") ")[1].split(" ")[0]) > 0 for epoch in epochs)  # rows came out
        assert int(last.split(" ")[0]) > 0
