"""What is imported when: each process of a job pays for it, and Spark starts many."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pandas", "pyarrow.dataset", "pyspark", "rich", "sqlalchemy", "sqlglot", "duckdb")


def test_importing_lsmstate_imports_nothing_heavy() -> None:
    program = f"import sys, lsmstate, lsmstate.join; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_source_of_ticks_does_without_pandas() -> None:
    program = "import sys, lsmstate.spark.ticker; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
