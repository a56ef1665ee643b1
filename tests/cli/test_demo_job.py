"""The parts of the demonstration's job that need no Spark: its rows, its feeder, its judgement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iopool import LocalFileSystem
from lsmstate.spark.demo import INPUTS, WATERMARK_S, Verdict, compared
from lsmstate.spark.demo_feed import Fed, Feeder
from lsmstate.spark.demo_rows import FILE_ROWS, FILE_US, LATE_US, Arrivals

SECOND_US = 1_000_000


def test_rows_are_the_same_in_every_run() -> None:
    one, other = Arrivals(), Arrivals()
    for _ in range(3):
        assert one.file() == other.file()


def test_rows_come_out_of_order_but_never_behind_the_watermark() -> None:
    arrivals = Arrivals()
    newest, behind = [0, 0], [0, 0]
    for _ in range(8):
        for side, batch in enumerate(arrivals.file()):
            ts = batch.column("ts").cast(pa.int64()).to_numpy()
            assert len(ts) == FILE_ROWS[side]
            assert ts.min() > newest[side] - WATERMARK_S * SECOND_US
            behind[side] += int((ts < newest[side]).sum())
            newest[side] = max(newest[side], int(ts.max()))
    assert min(behind) > 0
    # even if a source should miss a file once, and see it only with the next one
    assert FILE_US + LATE_US < WATERMARK_S * SECOND_US


def test_clicks_match_miss_their_time_and_belong_to_nothing() -> None:
    arrivals = Arrivals()
    files = [arrivals.file() for _ in range(12)]
    shown, clicked = (pa.Table.from_batches(side).select(["ad_id", "ts"]) for side in zip(*files, strict=True))
    joined = clicked.append_column("click", pa.array(np.arange(len(clicked)))).join(
        shown.rename_columns(["ad_id", "shown"]), "ad_id", join_type="left outer"
    )
    after = (joined.column("ts").to_numpy() - joined.column("shown").to_numpy()).astype("timedelta64[us]").astype(int)
    is_known = joined.column("shown").is_valid().to_numpy()
    counts = is_known & (after >= 0) & (after <= 20 * SECOND_US)
    clicks = joined.column("click").to_numpy()
    matched = len(np.unique(clicks[counts]))
    assert 0.7 * len(clicked) < matched < 0.95 * len(clicked)
    assert len(np.unique(clicks[~is_known])) > 0.05 * len(clicked)
    assert (after[is_known] > 20 * SECOND_US).any()


def test_feeder_writes_whole_files_and_counts_them(tmp_path: Path) -> None:
    feeder = Feeder(LocalFileSystem(), str(tmp_path), INPUTS, files=2)
    assert not feeder.ended
    feeder.pace()
    feeder.start()
    feeder._thread.join()
    assert feeder.ended
    assert feeder.error is None
    assert feeder.fed == Fed(2, (2 * FILE_ROWS[0], 2 * FILE_ROWS[1]))
    for side, rows in zip(INPUTS, FILE_ROWS, strict=True):
        files = sorted((tmp_path / side).iterdir())
        assert [path.name for path in files] == ["000001.parquet", "000002.parquet"]
        assert [pq.read_metadata(path).num_rows for path in files] == [rows, rows]
    assert not list((tmp_path / "drafts").iterdir())


def test_feeder_that_is_stopped_writes_no_more(tmp_path: Path) -> None:
    feeder = Feeder(LocalFileSystem(), str(tmp_path), INPUTS, files=1000)
    feeder.stop()
    feeder.start()
    feeder.stop()
    assert feeder.ended
    assert feeder.fed.files == 1
    assert len(list((tmp_path / "clicks").iterdir())) == 1


def test_feeder_that_fails_keeps_the_reason(tmp_path: Path) -> None:
    feeder = Feeder(LocalFileSystem(), str(tmp_path), INPUTS, files=1)
    (tmp_path / "clicks/000001.parquet").touch()
    feeder.start()
    feeder.stop()
    assert isinstance(feeder.error, FileExistsError)


def rows(*pairs: tuple[int, str | None]) -> pa.Table:
    return pa.table({"ad_id": [one for one, _ in pairs], "user": [other for _, other in pairs]})


@pytest.mark.parametrize(
    ("joined", "expected", "verdict"),
    [
        (rows((1, "a"), (2, None)), rows((2, None), (1, "a")), Verdict(2, 2, 0, 0)),
        (rows((1, "a")), rows((1, "a"), (1, "a")), Verdict(1, 2, 1, 0)),
        (rows((1, "a"), (1, "a"), (2, "b")), rows((1, "a"), (2, "b")), Verdict(3, 2, 0, 1)),
        (rows((1, "a"), (2, "b")), rows((1, "a"), (2, "c")), Verdict(2, 2, 1, 1)),
        (rows((1, "a")).slice(1), rows((1, "a")), Verdict(0, 1, 1, 0)),
    ],
)
def test_results_are_compared_row_by_row(joined: pa.Table, expected: pa.Table, verdict: Verdict) -> None:
    found = compared(joined, expected)
    assert found == verdict
    assert found.right == (verdict.missing == verdict.extra == 0)


def test_columns_in_another_order_are_the_same_result() -> None:
    assert compared(rows((1, "a")), rows((1, "a")).select(["user", "ad_id"])).right
