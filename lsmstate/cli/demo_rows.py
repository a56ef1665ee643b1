"""The rows of the demonstration: ads that are shown, and clicks on them, as they would arrive.

Seeded, so that every run sees the same rows. Rows arrive out of order, by less than `LATENESS_US`. A click follows the
showing of an ad after a minute or so, sometimes too late to count, and some clicks belong to nothing.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.schema import Side

I64 = npt.NDArray[np.int64]

EPOCHS = 12
EPOCH_US = 60_000_000  # of event time
WITHIN_US = 240_000_000  # a click counts that comes so long after the ad at most
LATENESS_US = 30_000_000
_START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
_IMPRESSIONS, _CLICKS, _ADS = 60_000, 40_000, 250_000  # the first two: in an epoch
EPOCH_ROWS = _IMPRESSIONS + _CLICKS
_MEAN_LAG_US = 80e6

_TIME = pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False)
_AD = pa.field("ad_id", pa.int64())
IMPRESSIONS = Side(
    "impressions",
    pa.schema([_AD, _TIME, ("impression", pa.int64()), ("campaign", pa.string()), ("cost", pa.float64())]),
    keys=["ad_id"],
    time="ts",
    retention=timedelta(microseconds=WITHIN_US),
)
# A click waits for impressions that arrive after it, and those are late by less than LATENESS_US.
CLICKS = Side(
    "clicks",
    pa.schema([_AD, _TIME, ("click", pa.int64()), ("user", pa.string())]),
    keys=["ad_id"],
    time="ts",
    retention=timedelta(microseconds=LATENESS_US),
)


class Arrivals:
    """The rows of one epoch after the other."""

    def __init__(self, seed: int = 7) -> None:
        self._rng = np.random.default_rng(seed)
        self._shown_ads = np.empty(0, np.int64)
        self._shown_ts = np.empty(0, np.int64)

    def impressions(self, epoch: int) -> pa.RecordBatch:
        """What was shown in an epoch."""
        rng, ts = self._rng, self._times(epoch, _IMPRESSIONS)
        ads = rng.integers(0, _ADS, _IMPRESSIONS)
        self._shown_ads = np.concatenate([self._shown_ads, ads])[-8 * _IMPRESSIONS :]
        self._shown_ts = np.concatenate([self._shown_ts, ts])[-8 * _IMPRESSIONS :]
        campaigns = pa.array([f"campaign-{n}" for n in range(40)]).take(pa.array(ads % 40))
        numbers = np.arange(_IMPRESSIONS) + epoch * _IMPRESSIONS
        cost = np.round(rng.uniform(0.01, 2.0, _IMPRESSIONS), 2)
        return _batch(IMPRESSIONS, [ads, ts, numbers, campaigns, cost])

    def clicks(self, epoch: int) -> pa.RecordBatch:
        """What was clicked in an epoch; nine in ten on an ad that was shown."""
        rng, ts = self._rng, self._times(epoch, _CLICKS)
        shown_at = ts - rng.exponential(_MEAN_LAG_US, _CLICKS).astype(np.int64)
        order = np.argsort(self._shown_ts)
        at = np.minimum(np.searchsorted(self._shown_ts[order], shown_at), len(order) - 1)
        ads = np.where(rng.random(_CLICKS) < 0.9, self._shown_ads[order[at]], _ADS + rng.integers(0, _ADS, _CLICKS))
        users = pc.binary_join_element_wise("user", pa.array(rng.integers(0, 100_000, _CLICKS)).cast(pa.string()), "-")
        return _batch(CLICKS, [ads, ts, np.arange(_CLICKS) + epoch * _CLICKS, users])

    def _times(self, epoch: int, rows: int) -> I64:
        """Event times of rows that arrive during an epoch, each a bit before its arrival."""
        arrived = np.sort(self._rng.integers((epoch - 1) * EPOCH_US, epoch * EPOCH_US, rows))
        return _START_US + arrived - self._rng.integers(0, LATENESS_US, rows)


def _batch(side: Side, columns: list[I64 | npt.NDArray[np.float64] | pa.Array]) -> pa.RecordBatch:
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, side.schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=side.schema)


def times_us(rows: pa.RecordBatch) -> I64:
    """The event times of rows."""
    ts: I64 = rows.column("ts").cast(pa.int64()).to_numpy()
    return ts


def expected_pairs(impressions: pa.Table, clicks: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The numbers of impressions and clicks that belong together, by pyarrow's own join of all rows."""
    left = impressions.select(["ad_id", "ts", "impression"]).rename_columns(["ad_id", "shown", "impression"])
    joined = left.join(clicks.select(["ad_id", "ts", "click"]), "ad_id", join_type="inner")
    after = pc.subtract(joined.column("ts").cast(pa.int64()), joined.column("shown").cast(pa.int64()))
    joined = joined.filter(pc.and_(pc.greater_equal(after, 0), pc.less_equal(after, WITHIN_US)))
    return joined.column("impression"), joined.column("click")
