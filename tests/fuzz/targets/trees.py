"""SSTables with columns of every type, lists, structs and maps among them: as sstable.py does with plain ones."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate.sstable.format import TREES
from tests.fuzz.targets.sstable import Kind, recipe, run_as, written
from tests.support.nested_store import SIDES, rows_of

NESTED = Kind(
    SIDES, (lambda first, count: rows_of(SIDES[0], first, count), lambda a, b: rows_of(SIDES[1], a, b)), TREES
)


def seeds() -> Iterator[tuple[str, bytes]]:
    yield "file", written(NESTED, 7)
    yield "small", recipe(written(NESTED, 7))


def run(data: bytes) -> None:
    run_as(NESTED, data)
