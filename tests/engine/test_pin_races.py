"""A reader that pins an epoch in the very moment in which a writer retires it: told that it is gone, or not robbed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from iopool import LocalFileSystem
from lsmstate import Options, Side, SnapshotExpired, StateStore, View

SIDE = Side(
    "events", pa.schema([("k", pa.int64()), ("ts", pa.int64())]), ["k"], "ts", retention=timedelta(microseconds=10)
)


class Interrupted(LocalFileSystem):
    """Calls somebody once, in the middle of a commit: right before the new head is linked, or a manifest removed."""

    def __init__(self, moment: str) -> None:
        super().__init__()
        self._moment = moment
        self.meanwhile: Callable[[], None] | None = None

    def link(self, source: str, target: str) -> None:
        self._call("link")
        super().link(source, target)

    def unlink(self, path: str) -> None:
        if "/manifest/0" in path:
            self._call("unlink")
        super().unlink(path)

    def _call(self, moment: str) -> None:
        if moment == self._moment and self.meanwhile is not None:
            call, self.meanwhile = self.meanwhile, None
            call()


def rows(epoch: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": [epoch], "ts": [epoch * 100]}, schema=SIDE.schema)


@pytest.mark.parametrize("moment", ["link", "unlink"])
def test_reader_that_pins_while_its_epoch_is_retired_keeps_its_rows_or_is_told(moment: str, tmp_path: Path) -> None:
    fs, options = Interrupted(moment), Options(retain=2, auto_compact=False)
    views: list[View] = []
    with (
        StateStore.open(tmp_path / "state", [SIDE], options, fs=fs) as store,
    ):
        for epoch in (1, 2, 3):
            store.append(0, rows(epoch))
            store.advance_watermark(epoch * 100)  # what came before is retired
            store.snapshot_epoch(epoch)
        with StateStore.open(tmp_path / "state", read_only=True) as reader:

            def pin() -> None:
                try:
                    views.append(reader.at_epoch(2))
                except SnapshotExpired:
                    return  # told in time

            fs.meanwhile = pin
            for epoch in (4, 5, 6):
                store.append(0, rows(epoch))
                store.advance_watermark(epoch * 100)
                store.snapshot_epoch(epoch)
            assert fs.meanwhile is None
            for view in views:
                assert [row for batch in view.scan(0) for row in batch.to_pylist()] == rows(2).to_pylist()
                view.close()
        store.snapshot_epoch(7)
        store.snapshot_epoch(8)
        assert len(list((tmp_path / "state" / "sst").iterdir())) <= 3, "and nothing is kept for ever"
