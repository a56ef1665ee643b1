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


def test_every_public_name_is_there_after_importing_lsmstate() -> None:
    program = (
        "import lsmstate; print(all(getattr(lsmstate, name) is not None for name in lsmstate.__all__), "
        "set(lsmstate.__all__) <= set(dir(lsmstate)), lsmstate.join.IntervalJoin, hasattr(lsmstate, 'nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True True <class 'lsmstate.join.operators.IntervalJoin'> False\n"


def test_importing_lsmstate_alone_imports_none_of_its_parts() -> None:
    program = (
        "import sys, lsmstate; print([name for name in ('numpy', 'pyarrow', 'lsmstate.engine') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
