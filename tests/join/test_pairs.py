"""Pairs come out in batches of bounded size, also where a wide row matches often."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from lsmstate import Side, StateStore
from lsmstate.join.kinds import Kind
from lsmstate.join.pairs import meet, row_bytes
from lsmstate.join.shape import Shape
from tests.support.simfs import SimFileSystem

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("text", pa.string())])
SIDES = (Side("left", SCHEMA, ["k"], "ts", timedelta(hours=1)), Side("right", SCHEMA, ["k"], "ts", timedelta(hours=1)))


def rows(texts: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": [1] * len(texts), "ts": [0] * len(texts), "text": texts}, schema=SCHEMA)


def test_sizes_of_rows_count_strings_and_nulls() -> None:
    assert row_bytes(rows(["", "abc", None])).tolist() == [20, 23, 20]


def text_of(*ends: int, spare: bytes = b"") -> pa.Array:
    """Texts that end there, of bytes that nobody reads."""
    offsets = pa.py_buffer(np.array([0, *ends], np.int32).tobytes() + spare)
    return pa.StringArray.from_buffers(len(ends), offsets, pa.py_buffer(np.zeros(ends[-1], np.uint8)))


def test_sizes_of_rows_are_told_of_odd_buffers_and_of_very_long_texts() -> None:
    def sizes(column: pa.Array) -> list[int]:
        return row_bytes(pa.record_batch([column], ["c"])).tolist()

    assert sizes(text_of(1, 3, spare=b"x")) == [5, 6]
    assert sizes(text_of(1, 3, spare=b"x").slice(1)) == [6]
    assert sizes(pa.StringArray.from_buffers(0, pa.py_buffer(b""), pa.py_buffer(b""))) == []
    most = 2**31 - 1
    assert sizes(text_of(most)) == [4 + most]
    assert sizes(pa.StructArray.from_arrays([text_of(most), text_of(most)], ["a", "b"]))[0] > 2 * most


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("stored", [False, True])
def test_wide_row_that_matches_often_comes_out_in_many_batches(
    side: int, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsmstate.join.pairs._BYTES_MAX", 100_000)
    monkeypatch.setattr("lsmstate.engine.probe._BATCH_BYTES", 100_000)
    with StateStore.open("/state", SIDES, fs=SimFileSystem()) as store:
        texts = [f"{n}" for n in range(300)]
        store.append(1 - side, rows(texts))
        if stored:
            store.snapshot_epoch(1)
        shape = Shape(SIDES, Kind(lower_us=-1, upper_us=1))
        batches = [met.columns for met in meet(store, shape, side, rows(["x" * 10_000]))]
    assert all(sum(column.nbytes for column in batch) < 120_000 for batch in batches)
    assert len(batches) > 20
    there = 2 if side else 5  # the text of the rows in the state
    assert sorted(text.as_py() for batch in batches for text in batch[there]) == sorted(texts)
