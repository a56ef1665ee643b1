"""The rows both engines are measured on: seeded, so that a run can be repeated exactly.

A row's key is a function of its id alone (`keys_of`), one to one and scrambled: ids that follow each other
lie far apart in any sorted store, and a probe can name existing keys without the state at hand. All of it is
numpy: a hundred thousand rows take 20 to 40 ms, and are made outside the timed part.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

KeyKind = Literal["int", "string"]

TIME = pa.timestamp("us", tz="UTC")
STRING_KEY_BYTES = 18

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # odd: multiplying by them is one to one on 64 bits
_HALF = 10**6  # a string key holds two halves of six digits
_TAG_MIN_BYTES, _TAG_MAX_BYTES = 26, 34


def keys_of(ids: npt.NDArray[np.int64], key_kind: KeyKind) -> pa.Array:
    """The keys of these ids: scrambled int64, or strings like ``user-000000012345x``."""
    if key_kind == "int":
        return pa.array(_mixed(ids).view(np.int64))
    high, low = np.divmod(ids, _HALF)
    for salt in range(1, 5):  # a Feistel network: whatever the mix, one to one on 12 digits
        high, low = low, (high + (_mixed(low + salt * _HALF) >> np.uint64(20)).astype(np.int64)) % _HALF
    text = np.empty((len(ids), STRING_KEY_BYTES), np.uint8)
    text[:, :5] = np.frombuffer(b"user-", np.uint8)
    for place in range(6):
        high, high_digit = np.divmod(high, 10)
        low, low_digit = np.divmod(low, 10)
        text[:, 10 - place] = high_digit + ord("0")
        text[:, 16 - place] = low_digit + ord("0")
    text[:, -1] = ord("x")
    return _strings(text.ravel(), np.full(len(ids), STRING_KEY_BYTES))


def make_rows(n: int, *, start_id: int, key_kind: KeyKind, ts0: int, ts1: int, seed: int) -> pa.RecordBatch:
    """Rows of ids from `start_id` on, each key once, times (us) rising with jitter from ts0 to ts1."""
    rng = np.random.default_rng([seed, start_id])
    ids = np.arange(start_id, start_id + n, dtype=np.int64)
    step = (ts1 - ts0) / max(n, 1)
    ts = ts0 + (np.arange(n) * step + rng.uniform(-3 * step, 3 * step, n)).astype(np.int64)
    return rows_of(keys_of(ids, key_kind), np.clip(ts, ts0, ts1), rng)


def make_probes(n: int, *, state_rows: int, key_kind: KeyKind, ts0: int, ts1: int, seed: int) -> pa.RecordBatch:
    """Rows of the other side, each with the key of a random id below `state_rows`, times from ts0 to ts1.

    With `covering(ts0, ts1)` as the interval every probe finds every row of its key.
    """
    rng = np.random.default_rng([seed, state_rows, 1])
    ids = rng.integers(0, state_rows, n, dtype=np.int64)
    return rows_of(keys_of(ids, key_kind), np.sort(rng.integers(ts0, ts1, n, endpoint=True)), rng)


def covering(ts0: int, ts1: int) -> tuple[int, int]:
    """An interval (lower, upper) that holds every row for every probe between ts0 and ts1."""
    return ts0 - ts1, ts1 - ts0


def _mixed(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Each id's 64 bits, well mixed and one to one (the finish of splitmix64)."""
    x = ids.astype(np.uint64)
    for shift, odd in zip((30, 27), _MIX, strict=True):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(odd)
    return x ^ (x >> np.uint64(31))


def texts(n: int, size: int, rng: np.random.Generator) -> pa.Array:
    """Random strings of one size."""
    letters = rng.integers(ord("a"), ord("z"), n * size, dtype=np.uint8, endpoint=True)
    return _strings(letters, np.full(n, size))


def rows_of(keys: pa.Array, ts: npt.NDArray[np.int64], rng: np.random.Generator) -> pa.RecordBatch:
    """Rows with these keys and times, and a random payload."""
    n = len(ts)
    sizes = rng.integers(_TAG_MIN_BYTES, _TAG_MAX_BYTES, n, endpoint=True)
    letters = rng.integers(ord("a"), ord("z"), int(sizes.sum()), dtype=np.uint8, endpoint=True)
    return pa.RecordBatch.from_arrays(
        [keys, pa.array(ts).cast(TIME), pa.array(rng.uniform(0.0, 1000.0, n)), _strings(letters, sizes)],
        names=["key", "ts", "amount", "tag"],
    )


def _strings(data: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.StringArray.from_buffers(len(sizes), pa.py_buffer(offsets), pa.py_buffer(data))
