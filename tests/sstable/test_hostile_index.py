"""An index that somebody wrote with right checksums: whatever it tells of columns, readers give values or refuse it.

Sections, children and parts change places too, whose bytes and checksums are right: then Arrow would trust them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from iopool import LocalFileSystem
from lsmstate import CorruptionError
from lsmstate.cli.sstable_report import describe
from lsmstate.cli.sstable_rows import pick_rows
from lsmstate.cli.values import plain_values
from lsmstate.engine.verify import problems_of
from lsmstate.sstable.format import FLAT, FOOTER_BYTES, TREES, pack_footer, unpack_footer
from lsmstate.sstable.reader import SSTable
from lsmstate.sstable.sparse import gather
from tests.support.cli_state import newest_file, rewrite_index
from tests.support.nested_store import build
from tests.support.sizes import size

CHANGES = size("hostile_indexes")
SLICES = 4
ODD = [None, -1, 0, 1, 3, 1 << 31, 1 << 62, 1 << 80, "x", [], {}, True, 1.5, [0, 64, 0], [[0, 0, 0]]]
Place = tuple[Any, Any]  # a list or an object, and where in it


@pytest.fixture(scope="module")
def sstable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    build(LocalFileSystem(), str(path / "state"))
    return newest_file(path / "state")


def places(told: Any) -> Iterator[Place]:
    """All places below a value."""
    for at in list(told) if isinstance(told, dict) else range(len(told)) if isinstance(told, list) else ():
        yield told, at
        yield from places(told[at])


def change(rng: Random, index: dict[str, Any]) -> None:
    """Changes one thing, or lets two of a kind change places."""
    known = [place for run in index["runs"] for place in places(run["columns"])]
    holder, at = known[rng.randrange(len(known))]
    way = rng.randrange(3)
    if way == 0:
        holder[at] = copy.deepcopy(ODD[rng.randrange(len(ODD))])
    elif way == 1:
        del holder[at]
    else:
        kind, size = type(holder[at]), len(json.dumps(holder[at])) > 60
        alike = [p for p in known if type(p[0][p[1]]) is kind and (len(json.dumps(p[0][p[1]])) > 60) == size]
        other, there = alike[rng.randrange(len(alike))]
        mine, its = copy.deepcopy(holder[at]), copy.deepcopy(other[there])
        holder[at] = its
        other[there] = mine


def read(path: Path) -> None:
    """All that readers do with a file; raises CorruptionError only."""
    table = SSTable(LocalFileSystem(), str(path))
    for run in table.runs:
        side, rows = table.sides[run.ref.side], np.array([run.ref.rows - 1, 0])
        assert run.row_bytes > 0
        for field in range(len(side.schema)):
            for array in (run.column(field), run.column(field, rows)):
                plain_values(array)
        gather(side, [(run, rows), (run, rows[:1])])


@pytest.mark.parametrize("part", range(SLICES))
def test_hostile_index_is_refused_or_gives_values(part: int, sstable: Path, tmp_path: Path, figures) -> None:
    path, sound = tmp_path / sstable.name, sstable.read_bytes()
    for seed in range(part, CHANGES, SLICES):
        path.write_bytes(sound)
        rng = Random(seed)
        rewrite_index(path, lambda index, rng=rng: change(rng, index))
        try:
            read(path)
            figures.add("hostile indexes, read", 1)
        except CorruptionError:
            figures.add("hostile indexes, refused", 1)
        try:
            table = SSTable(LocalFileSystem(), str(path))
        except CorruptionError:
            continue
        list(problems_of(table))
        json.dumps([describe(table), pick_rows(table, 100, [])], allow_nan=False)


def test_file_of_format_1_that_tells_of_trees_is_refused(sstable: Path, tmp_path: Path) -> None:
    content, path = sstable.read_bytes(), tmp_path / sstable.name
    footer = unpack_footer(str(sstable), memoryview(content))
    assert footer.version == TREES
    path.write_bytes(content[:-FOOTER_BYTES] + pack_footer(footer._replace(version=FLAT)))
    with pytest.raises(CorruptionError, match="a readable index"):
        SSTable(LocalFileSystem(), str(path))
