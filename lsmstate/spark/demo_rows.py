"""The rows of the demonstration: ads that are shown, and clicks on them, file by file as they would arrive.

Seeded, so that every run sees the same rows. Most rows arrive in the order of their times, a few come up to `LATE_US`
later. A click follows the showing of an ad after some seconds, now and then too late to count, and some clicks belong
to nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

I64 = npt.NDArray[np.int64]

IMPRESSIONS = pa.schema(
    [("ad_id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("campaign", pa.string()), ("price", pa.float64())]
)
CLICKS = pa.schema([("ad_id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("user", pa.string())])
FILE_ROWS = (30_000, 20_000)  # impressions, clicks
FILE_US = 5_000_000  # of event time
LATE_US = 4_000_000
_START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
_JITTER_US = 200_000
_LATE_SHARE, _STRAY_SHARE = 0.03, 0.1
_MEAN_LAG_US = 7e6
_ADS, _CAMPAIGNS, _USERS = 1_000_000, 40, 100_000


class Arrivals:
    """The rows of one file after the other, for both sides."""

    def __init__(self, seed: int = 7) -> None:
        self._rng = np.random.default_rng(seed)
        self._file = 0
        self._shown = np.empty((2, 0), np.int64)  # times and ads of the last showings
        self._ahead = self._impressions(0)

    def file(self) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Impressions and clicks of the next file. Some clicks belong to an impression that comes one file later."""
        impressions, number = self._ahead, self._file
        self._file += 1
        self._ahead = self._impressions(self._file)
        return impressions, self._clicks(number)

    def _impressions(self, file: int) -> pa.RecordBatch:
        rows, rng = FILE_ROWS[0], self._rng
        ads, ts = rng.integers(0, _ADS, rows), self._times(file, rows)
        self._shown = np.concatenate([self._shown, [ts, ads]], axis=1)[:, -8 * rows :]
        campaigns = pa.array([f"campaign-{n}" for n in range(_CAMPAIGNS)]).take(pa.array(ads % _CAMPAIGNS))
        price = np.round(rng.uniform(0.01, 2.0, rows), 2)
        return _batch(IMPRESSIONS, [ads, ts, campaigns, price])

    def _clicks(self, file: int) -> pa.RecordBatch:
        rows, rng = FILE_ROWS[1], self._rng
        ts = self._times(file, rows)
        shown_at = ts - rng.exponential(_MEAN_LAG_US, rows).astype(np.int64)
        shown_ts, ads = self._shown[:, np.argsort(self._shown[0])]
        at = np.searchsorted(shown_ts, shown_at, "right") - 1
        stray = (at < 0) | (rng.random(rows) < _STRAY_SHARE)
        clicked = np.where(stray, _ADS + rng.integers(0, _ADS, rows), ads[at])
        users = pc.binary_join_element_wise("user", pa.array(rng.integers(0, _USERS, rows)).cast(pa.string()), "-")
        return _batch(CLICKS, [clicked, ts, users])

    def _times(self, file: int, rows: int) -> I64:
        """Event times of the rows of a file, each a bit before its arrival; of a few, seconds before it."""
        arrived = np.sort(self._rng.integers(file * FILE_US, (file + 1) * FILE_US, rows))
        late = self._rng.random(rows) < _LATE_SHARE
        before = self._rng.integers(0, np.where(late, LATE_US, _JITTER_US))
        return _START_US + arrived - before


def _batch(schema: pa.Schema, columns: list[I64 | npt.NDArray[np.float64] | pa.Array]) -> pa.RecordBatch:
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
