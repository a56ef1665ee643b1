"""Records of a log with right checksums and bytes that somebody changed: rows of every type, or a refusal."""

from __future__ import annotations

from random import Random

import pytest

from lsmstate import CorruptionError
from lsmstate.cli.values import plain_values
from lsmstate.engine.wal_frames import Record
from lsmstate.engine.wal_rows import ROWS, rows_in, rows_record
from tests.support.nested_store import SIDES, rows_of
from tests.support.sizes import size

CHANGES = size("hostile_logs")
SLICES = 4


@pytest.mark.parametrize("part", range(SLICES))
def test_changed_record_gives_rows_that_can_be_read_or_is_refused(part: int, figures) -> None:
    sides = tuple(SIDES)
    sound = b"".join(bytes(view) for view in rows_record(0, SIDES[0], rows_of(SIDES[0], 10, 6), 1))
    for seed in range(part, CHANGES, SLICES):
        rng, changed = Random(seed), bytearray(sound)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        record = Record(ROWS, bytes(changed), 1, "wal", 0)
        try:
            _, parts, _ = rows_in(record, sides)
        except CorruptionError:
            figures.add("changed records, refused", 1)
            continue
        for rows in parts:
            for column in rows.columns:
                if column is not None:
                    plain_values(column)
        figures.add("changed records, read", 1)
