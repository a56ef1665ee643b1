"""Plants each defect in a copy of the tree and runs its tests there: `python -m tests.planted [PART OF A NAME ...]`.

A defect is caught when the tests fail; they pass in the tree as it is, which `make test` shows. Ends with 1 if one was
not caught. With LSMSTATE_TEST_FIGURES the figures are added to that directory, for `make reliability`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.planted.defects import DEFECTS, Defect
from tests.support.figures import write_figures

ROOT = Path(__file__).parents[2]
COPIED = ("lsmstate", "compaction", "iopool", "tests", "docs", "README.md", "setup.cfg", "pyproject.toml")
HANGS_SECONDS = 1800
FAILED = 1  # the exit code of pytest when tests have failed; others mean that it could not even run them


def plant(defect: Defect, copy: Path) -> None:
    """Makes the change. The text must stand there exactly once."""
    target = copy / defect.path
    text = target.read_text()
    assert text.count(defect.old) == 1, f"{defect.path}: the text to change stands there {text.count(defect.old)} times"
    target.write_text(text.replace(defect.old, defect.new))


def catch(defect: Defect) -> tuple[bool, str]:
    """Whether the tests catch it, and the test that did, or the end of what they said."""
    with tempfile.TemporaryDirectory(prefix="lsmstate-planted-") as home:
        copy = Path(home)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)
        plant(defect, copy)
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("LSMSTATE_TEST_FIGURES", None)
        command = [sys.executable, "-m", "pytest", "-x", "-q", *defect.tests]
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=HANGS_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False, f"the tests have not ended within {HANGS_SECONDS} s"
    failed = [line.removeprefix("FAILED ") for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if done.returncode == FAILED and failed:
        return True, failed[0].split(" - ")[0]
    return False, (done.stdout + done.stderr)[-800:]


def main(wanted: list[str]) -> int:
    caught = {}
    for name, defect in DEFECTS.items():
        if wanted and not any(part in name for part in wanted):
            continue
        found, by = catch(defect)
        caught[name] = found
        sys.stdout.write(f"{'caught' if found else 'NOT CAUGHT'}: {defect.where}: {name}\n    {by}\n")
        sys.stdout.flush()
        write_figures({"defects planted in the code: {} of {} caught": [sum(caught.values()), len(caught)]}, "planted")
    return 0 if all(caught.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
