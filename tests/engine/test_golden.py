"""States written by every released format can be read: `tests/golden/format-N` and what must be read from it.

A new format gets a directory of its own: `python -m tests.engine.test_golden tests/golden/format-N`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from iopool import LocalFileSystem
from lsmstate.sstable.format import VERSION
from tests.support import nested_store, small_store
from tests.support.simfs import SimFileSystem

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS = sorted(path.name for path in GOLDEN.glob("format-*"))
STORES: dict[str, ModuleType] = {"format-1": small_store, "format-2": nested_store}


def test_present_format_has_a_golden_state() -> None:
    assert f"format-{VERSION}" in FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_golden_state_reads_as_it_was_written(name: str, tmp_path: Path) -> None:
    fresh, kind = SimFileSystem(), STORES[name]
    kind.build(fresh)
    shutil.copytree(GOLDEN / name, tmp_path / "state")
    path = str(tmp_path / "state")
    assert kind.read_all(LocalFileSystem(), path) == kind.read_all(fresh)
    with kind.open_store(LocalFileSystem(), path) as store:
        assert store.verify() == []
        store.snapshot_epoch(kind.EPOCHS + 1)
    with kind.open_store(LocalFileSystem(), path, read_only=True) as store:
        assert store.epochs()[-1] == kind.EPOCHS + 1


if __name__ == "__main__":
    STORES[Path(sys.argv[1]).name].build(LocalFileSystem(), str(Path(sys.argv[1]).absolute()))
