"""The peer is only worth beating if it is right: it finds exactly the rows a dictionary finds."""

import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from bench.rocks_peer import Keys, RocksJoinState, pack_payloads
from bench.workload import STRING_KEY_BYTES, KeyKind, covering, make_probes, make_rows

KINDS: list[KeyKind] = ["int", "string"]
SPAN = (-3_000, 9_000)


class Model:
    """Every row in a dictionary by side and key."""

    def __init__(self) -> None:
        self.rows: defaultdict[tuple[int, object], list[tuple[int, bytes]]] = defaultdict(list)

    def append(self, side: int, keys: list[object], ts: list[int], payloads: list[bytes]) -> None:
        for key, at, payload in zip(keys, ts, payloads, strict=True):
            self.rows[side, key].append((at, payload))

    def probe(self, side: int, keys: list[object], ts: list[int], lower: int, upper: int) -> list[tuple[int, bytes]]:
        return sorted(
            (row, payload)
            for row, (key, at) in enumerate(zip(keys, ts, strict=True))
            for time, payload in self.rows.get((side, key), [])
            if lower <= time - at <= upper
        )


def open_state(path: Path, kind: KeyKind) -> RocksJoinState:
    return RocksJoinState(path, key_bytes=STRING_KEY_BYTES if kind == "string" else None)


def draw(kind: KeyKind, rng: np.random.Generator, n: int) -> Keys:
    """Few distinct keys, so that most rows share theirs; strings that are prefixes of each other."""
    numbers = rng.integers(-20, 20, n)
    if kind == "int":
        return numbers
    return [b"k" * (number % 5) + b"\x00" * (number % 3) for number in numbers.tolist()]


def found(
    state: RocksJoinState, side: int, keys: Keys, ts: npt.NDArray[np.int64], lower: int, upper: int
) -> list[tuple[int, bytes]]:
    matches = state.probe(side, keys, ts, lower, upper)
    assert matches.count == len(matches.payloads) == len(matches.probe_index)
    return sorted(zip(matches.probe_index.tolist(), matches.payloads, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_peer_finds_what_a_dictionary_finds(kind: KeyKind, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    state, model = open_state(tmp_path / "state", kind), Model()
    for epoch in range(6):
        for side in (0, 1):
            keys, ts = draw(kind, rng, 400), rng.integers(*SPAN, 400)
            for lower, upper in [(-500, 500), (-2_000, -1), (0, 0), (1, 0), (-(2**62), 2**62)]:
                expected = model.probe(1 - side, list(keys), ts.tolist(), lower, upper)
                assert found(state, 1 - side, keys, ts, lower, upper) == expected
            payloads = [b"%d/%d/%d" % (epoch, side, row) for row in range(400)]
            state.append(side, keys, ts, payloads)
            model.append(side, list(keys), ts.tolist(), payloads)
        state.commit()
    state.close()


@pytest.mark.parametrize("kind", KINDS)
def test_both_bounds_of_the_interval_belong_to_it(kind: KeyKind, tmp_path: Path) -> None:
    state = open_state(tmp_path / "state", kind)
    key: Keys = np.array([5]) if kind == "int" else [b"five"]
    for at in (89, 90, 100, 110, 111):
        state.append(0, key, np.array([at]), [b"%d" % at])
    assert found(state, 0, key, np.array([100]), -10, 10) == [(0, b"100"), (0, b"110"), (0, b"90")]
    state.close()


@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_are_all_kept(kind: KeyKind, tmp_path: Path) -> None:
    state = open_state(tmp_path / "state", kind)
    keys: Keys = np.array([5, 5]) if kind == "int" else [b"five", b"five"]
    for _ in range(3):
        state.append(0, keys, np.array([100, 100]), [b"same", b"same"])
        state.commit()
    assert state.probe(0, keys[:1], np.array([100]), 0, 0).payloads == [b"same"] * 6
    state.close()


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_crash_the_last_committed_epoch_is_there_and_no_more(kind: KeyKind, tmp_path: Path) -> None:
    state = open_state(tmp_path / "state", kind)
    key: Keys = np.array([5]) if kind == "int" else [b"five"]
    for payload in (b"first", b"second"):
        state.append(0, key, np.array([100]), [payload])
        state.commit()
    state.append(0, key, np.array([100]), [b"lost"])
    shutil.copytree(tmp_path / "state", tmp_path / "crashed")
    state.close()
    reopened = open_state(tmp_path / "crashed", kind)
    reopened.append(0, key, np.array([100]), [b"third"])
    reopened.commit()
    assert sorted(reopened.probe(0, key, np.array([100]), 0, 0).payloads) == [b"first", b"second", b"third"]
    reopened.close()


@pytest.mark.parametrize("kind", KINDS)
def test_each_probe_of_the_workload_finds_its_one_row_also_after_a_crash(kind: KeyKind, tmp_path: Path) -> None:
    n = 60_000  # enough for `append` to begin a flush in the background
    rows = make_rows(n, start_id=0, key_kind=kind, ts0=0, ts1=10**6, seed=1)
    probes = make_probes(n, state_rows=n, key_kind=kind, ts0=0, ts1=10**6, seed=1)
    payloads = pack_payloads(rows)
    at = {key: row for row, key in enumerate(rows.column("key").to_pylist())}
    expected = [(row, payloads[at[key]]) for row, key in enumerate(probes.column("key").to_pylist())]
    state = open_state(tmp_path / "state", kind)
    state.append(0, *columns(rows, kind), payloads)
    assert found(state, 0, *columns(probes, kind), *covering(0, 10**6)) == expected
    state.append(1, *columns(rows, kind), payloads)
    state.commit()
    shutil.copytree(tmp_path / "state", tmp_path / "crashed")
    state.close()
    reopened = open_state(tmp_path / "crashed", kind)
    for side in (0, 1):
        assert found(reopened, side, *columns(probes, kind), *covering(0, 10**6)) == expected
    reopened.close()


def columns(batch: pa.RecordBatch, kind: KeyKind) -> tuple[Keys, npt.NDArray[np.int64]]:
    key, ts = batch.column("key"), batch.column("ts").cast(pa.int64()).to_numpy()
    return (key.to_numpy() if kind == "int" else key.cast(pa.binary()).to_pylist()), ts
