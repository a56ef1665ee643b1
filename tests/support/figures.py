"""Figures of runs as files, so that several runs make one report: `docs/reliability.md`.

`LSMSTATE_TEST_FIGURES` names a directory; each run leaves a JSON document there under a name of its own, with when it
ran, on what, and how large it was. Without it nothing is written.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.support.sizes import ENV

FIGURES_ENV = "LSMSTATE_TEST_FIGURES"
PACKAGES = ("numpy", "pyarrow", "pyspark", "SQLAlchemy", "hypothesis", "pytest")


def write_figures(figures: Mapping[str, Sequence[int]], name: str, **more: Any) -> None:
    """Leaves the figures of a run, and what it ran on."""
    directory = os.environ.get(FIGURES_ENV)
    if not directory:
        return
    document = {
        "figures": {what: list(numbers) for what, numbers in figures.items()},
        "size": os.environ.get(ENV) or "default",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"Python": platform.python_version(), "Linux": platform.release(), **_packages()},
        **more,
    }
    Path(directory).mkdir(parents=True, exist_ok=True)
    (Path(directory) / f"{name}.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def lines_of(figures: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """One line a figure. A name with braces says where its numbers stand."""
    for name, numbers in sorted(figures.items()):
        yield (name if "{" in name else f"{name}: {{}}").format(*(f"{n:,}" for n in numbers))


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
