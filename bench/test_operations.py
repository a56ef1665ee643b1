"""Single operations, by pytest-benchmark: what an epoch is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.states import HOUR_US, SEED, build
from bench.workload import KeyKind, covering, make_probes, make_rows
from lsmstate import StateStore
from lsmstate.hashing import hash_keys

ROWS = 100_000
STATE_ROWS = 1_000_000
LOWER, UPPER = covering(0, HOUR_US)


@pytest.fixture(params=["int", "string"])
def key_kind(request: pytest.FixtureRequest) -> KeyKind:
    return request.param


@pytest.fixture
def store(tmp_path: Path, key_kind: KeyKind) -> Iterator[StateStore]:
    with build(tmp_path / "state", STATE_ROWS, 16, key_kind) as store:
        yield store


def test_hash_100k_keys(benchmark: BenchmarkFixture, key_kind: KeyKind) -> None:
    rows = make_rows(ROWS, start_id=0, key_kind=key_kind, ts0=0, ts1=HOUR_US, seed=SEED)
    benchmark(hash_keys, [rows.column("key")])


def test_append_100k_rows(benchmark: BenchmarkFixture, store: StateStore, key_kind: KeyKind) -> None:
    rows = make_rows(ROWS, start_id=STATE_ROWS, key_kind=key_kind, ts0=0, ts1=HOUR_US, seed=SEED)
    benchmark.pedantic(store.append, (0, rows), rounds=5)


def test_probe_100k_rows(benchmark: BenchmarkFixture, store: StateStore, key_kind: KeyKind) -> None:
    probes = make_probes(ROWS, state_rows=STATE_ROWS, key_kind=key_kind, ts0=0, ts1=HOUR_US, seed=SEED)
    benchmark(lambda: sum(batch.num_rows for batch in store.probe(0, probes, LOWER, UPPER)))


def test_commit_100k_rows(benchmark: BenchmarkFixture, store: StateStore, key_kind: KeyKind) -> None:
    rows = make_rows(ROWS, start_id=STATE_ROWS, key_kind=key_kind, ts0=0, ts1=HOUR_US // 16, seed=SEED)
    epochs = iter(range(100, 1000))

    def setup() -> tuple[tuple[int], dict[str, object]]:
        store.append(0, rows)
        return (next(epochs),), {}

    benchmark.pedantic(store.snapshot_epoch, setup=setup, rounds=15)


def test_scan_1m_rows(benchmark: BenchmarkFixture, store: StateStore) -> None:
    assert benchmark(lambda: sum(batch.num_rows for batch in store.scan(0))) >= STATE_ROWS * 0.99


def test_open(benchmark: BenchmarkFixture, store: StateStore, tmp_path: Path) -> None:
    benchmark(lambda: StateStore.open(tmp_path / "state", read_only=True).close())
