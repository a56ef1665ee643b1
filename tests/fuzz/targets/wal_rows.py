"""Records of a write-ahead log (engine/wal_rows.py). The first byte of an input is the kind of the record."""

from __future__ import annotations

from collections.abc import Iterator

from lsmstate.engine import wal_rows
from lsmstate.engine.wal_frames import Record
from tests.fuzz.kit import documented
from tests.support.small_store import SIDES, left_rows, right_rows

SMALL = 64 << 20


def seeds() -> Iterator[tuple[str, bytes]]:
    for side, rows in enumerate((left_rows(1, 5), right_rows(1, 5))):
        views = wal_rows.rows_record(side, SIDES[side], rows, 7)
        yield f"rows{side}", bytes([wal_rows.ROWS]) + b"".join(map(bytes, views))
    yield "removal", bytes([wal_rows.REMOVAL]) + b"".join(map(bytes, wal_rows.removal_record(1, -5, 10, 3)))
    yield "watermark", bytes([wal_rows.WATERMARK]) + b"".join(map(bytes, wal_rows.watermark_record(1_000_000)))


def run(data: bytes) -> None:
    record = Record(data[0] if data else wal_rows.ROWS, data[1:], 100, "/wal", 64)
    with documented():
        if record.kind == wal_rows.REMOVAL:
            removal = wal_rows.removal_in(record, tuple(SIDES))
            assert removal.start < removal.end
        elif record.kind == wal_rows.WATERMARK:
            wal_rows.watermark_in(record)
        else:
            side, parts, _ = wal_rows.rows_in(record, tuple(SIDES))
            for part in parts:
                assert part.size_bytes < SMALL
                assert side in (0, 1)
