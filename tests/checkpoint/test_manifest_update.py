"""Updates of a saved manifest: the statuses of sinks change, forward only, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lsmstate.checkpoint.manifest.manifest import COMMITTED, PENDING, CheckpointManifest, failed
from lsmstate.errors import EpochError, FencedError
from tests.support.checkpoints import (
    BIG,
    committed,
    during,
    files,
    sinks,
    store_on,
)
from tests.support.simfs import SimFileSystem


def test_update_keeps_checksum_sidecar_and_all_else() -> None:
    """A second save that dropped the checksum would leave the sidecar unchecked."""
    fs = SimFileSystem()
    store = store_on(fs)
    first = sinks(store)
    store.update(committed(first))
    again = store.load(1)
    assert again == replace(first, sink_commit_statuses={"out": COMMITTED})
    assert again.state_checksum == first.state_checksum is not None
    assert store.states(again).get("a") == BIG
    assert files(fs) == {"000000000001.1.json", "000000000001.state"}


def test_update_changes_statuses_and_nothing_else() -> None:
    store = store_on(SimFileSystem())
    first = sinks(store)
    for changed in (
        replace(first, state_checksum=None),
        replace(first, watermark=1),
        replace(first, epoch=2),
        replace(first, operator_states={}),
    ):
        with pytest.raises(ValueError, match="in more than the statuses"):
            store.update(changed)
    assert store.load(1) == first
    with pytest.raises(EpochError, match="never saved"):
        store.update(CheckpointManifest.new(5, 5))


def test_committed_sink_stays_committed_and_failed_one_may_be_tried_again() -> None:
    fs = SimFileSystem()
    store = store_on(fs)
    first = sinks(store)
    store.update(replace(first, sink_commit_statuses={"out": failed("busy")}))
    store.update(committed(first))
    for status in (PENDING, failed("again")):
        with pytest.raises(ValueError, match="cannot be taken back"):
            store.update(replace(first, sink_commit_statuses={"out": status}))
    before = files(fs)
    store.update(committed(first))
    assert files(fs) == before == {"000000000001.2.json", "000000000001.state"}


def test_update_that_another_was_faster_with_is_fenced() -> None:
    fs = SimFileSystem()
    store, other = store_on(fs), store_on(fs.spawn())
    first = sinks(store)
    during(fs, "link", ".1.json", lambda: other.update(replace(first, sink_commit_statuses={"out": failed("x")})))
    with pytest.raises(FencedError):
        store.update(committed(first))
