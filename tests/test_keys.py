"""Keys and times: their order, and arithmetic at the ends of int64."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lsmstate.keys import TS_MAX, TS_MIN, bucket_end, bucket_start, decode_key, encode_key, saturate, shifted

sides = st.integers(0, 255)
times = st.one_of(st.sampled_from([TS_MIN, -1, 0, 1, TS_MAX]), st.integers(TS_MIN, TS_MAX))


@given(sides, times)
def test_key_reads_back_the_same(side: int, ts: int) -> None:
    key = encode_key(side, ts)
    assert len(key) == 9
    assert key[0] == side
    assert decode_key(key) == (side, ts)


@given(sides, times, sides, times)
def test_keys_order_like_side_and_time(side: int, ts: int, other_side: int, other_ts: int) -> None:
    assert (encode_key(side, ts) < encode_key(other_side, other_ts)) == ((side, ts) < (other_side, other_ts))


@given(st.lists(times, max_size=5), st.one_of(times, st.integers(-(2**65), 2**65), st.just(-(10**30))))
def test_shifted_times_stop_at_the_ends(ts: list[int], by: int) -> None:
    got = shifted(np.array(ts, np.int64), by)
    assert got.dtype == np.int64
    assert got.tolist() == [saturate(t + by) for t in ts]


@given(times, st.one_of(st.integers(1, 10**9), st.integers(1, 2**62)))
def test_bucket_of_a_time_begins_and_ends_around_it(ts: int, width: int) -> None:
    number = ts // width
    assert TS_MIN <= bucket_start(number, width) <= ts <= bucket_end(number, width) <= TS_MAX
