"""Snapshots between real processes on real files: pins hold across them, and end with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsmstate import Options, StateStore
from tests.support.peer import KINDS, Peer, write_epochs
from tests.support.states import batch, rows_of


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state")


@pytest.fixture
def store(path: str) -> Iterator[StateStore]:
    with StateStore.open(path, KINDS, Options(retain=2, memtable_bytes=1)) as store:
        write_epochs(store, range(1, 4))
        yield store


def sst_files(path: str) -> set[str]:
    return set(os.listdir(f"{path}/sst"))


def test_snapshot_ignores_epochs_of_another_process(path: str, store: StateStore) -> None:
    store.append(0, batch((7, 3001, "uncommitted")))
    with store.snapshot() as view, Peer(path) as peer:
        pinned = sst_files(path)
        peer.do("write 10 40")
        assert pinned <= sst_files(path)
        assert rows_of(view.scan(0)) == [(3, 3000, "x"), (7, 3001, "uncommitted")]
        view.close()
        peer.do("write 41 43")
        assert not pinned & sst_files(path)


def test_snapshot_ignores_a_restore_by_another_process(path: str, store: StateStore) -> None:
    with store.snapshot() as view, Peer(path) as peer:
        peer.do("restore 2")
        peer.do("write 3 30")
        assert rows_of(view.scan(0)) == [(3, 3000, "x")]


def test_snapshot_of_another_process_survives_our_epochs(path: str, store: StateStore) -> None:
    with Peer(path) as peer:
        peer.do("snapshot")
        write_epochs(store, range(10, 41))
        assert store.stats().files_collected > 20
        assert peer.do("read") == [[3, 3000, "x"]]


def test_snapshot_of_a_killed_process_is_collected(path: str, store: StateStore) -> None:
    pinned = sst_files(path)
    with Peer(path) as peer:
        peer.do("snapshot")
        write_epochs(store, range(10, 14))
        assert pinned & sst_files(path)
        peer.kill()
        write_epochs(store, range(14, 15))
    assert not pinned & sst_files(path)
    assert os.listdir(f"{path}/pins") == []
