"""Going back to an epoch: an error or a power cut at any operation leaves the state as it was, or gone back."""

from __future__ import annotations

import errno

import pytest

from lsmstate import EpochError, LsmStateError, Options, StateStore
from lsmstate.engine.identity import Identity, read_identity
from lsmstate.engine.recovery import loss_after, published, recover
from lsmstate.manifest import names
from tests.support.crash_check import unsynced_lost
from tests.support.simfs import SimFileSystem, fail_at
from tests.support.small_store import SIDES, left_rows

PATH = "/state"
LOGGED = Options(durability="wal")
Rows = list[tuple[object, ...]]


def written(options: Options) -> SimFileSystem:
    """Two epochs of ten rows, and with a log ten rows more."""
    fs = SimFileSystem()
    with StateStore.open(PATH, SIDES, options, fs=fs) as store:
        for epoch in (1, 2):
            store.append(0, left_rows(epoch * 10, 10))
            store.snapshot_epoch(epoch)
        store.append(0, left_rows(30, 10))
    return fs


def identity_of(fs: SimFileSystem) -> Identity:
    identity = read_identity(fs, PATH)
    assert identity is not None
    return identity


def rows_of(fs: SimFileSystem, options: Options) -> int:
    with StateStore.open(PATH, options=options, fs=fs.copy()) as store:
        return sum(batch.num_rows for batch in store.scan(0))


def with_damaged_head(fs: SimFileSystem) -> SimFileSystem:
    tree = fs.tree()
    head = f"{PATH}/manifest/{names.head(max(filter(None, map(names.parse_head, fs.list_dir(f'{PATH}/manifest')))))}"
    data = tree[head]
    assert data is not None
    return SimFileSystem.of({path: data[:-9] if content == data else content for path, content in tree.items()})


@pytest.mark.parametrize("options", [Options(), LOGGED], ids=["epoch", "wal"])
def test_error_or_power_cut_at_any_operation_leaves_it_as_it_was_or_gone_back(options: Options) -> None:
    sound = written(options)
    before, after = rows_of(sound, options), 10
    assert before == (30 if options is LOGGED else 20)
    clean = sound.copy()
    recover(clean, PATH, identity_of(sound), 1)
    assert clean.ops > 12
    for index in range(clean.ops):
        fs = sound.copy()
        fs.fault = fail_at(index, errno.EIO)
        failed = False
        try:
            recover(fs, PATH, identity_of(fs.copy()), 1)
        except (OSError, LsmStateError):  # what cannot be read counts as damaged
            failed = True
        for image in (fs, unsynced_lost(fs)):
            image.fault = None
            assert rows_of(image, options) in ((before, after) if failed else (after,))
            recover(image, PATH, identity_of(image), 1)
            assert rows_of(image, options) == after


@pytest.mark.parametrize("options", [Options(), LOGGED], ids=["epoch", "wal"])
def test_damaged_head_is_gone_back_from_and_the_state_goes_on(options: Options) -> None:
    fs = with_damaged_head(written(options))
    with pytest.raises(LsmStateError):
        StateStore.open(PATH, fs=fs)
    identity = identity_of(fs)
    assert [manifest.version.epoch for manifest in published(fs, PATH, identity)][:1] == [1]
    recover(fs, PATH, identity, 1)
    with StateStore.open(PATH, options=options, fs=fs) as store:
        assert store.epochs() == [1]
        store.append(0, left_rows(50, 10))
        store.snapshot_epoch(2)
        store.append(0, left_rows(60, 10))
    assert rows_of(fs, options) == (30 if options is LOGGED else 20)


def test_loss_counts_rows_that_came_after_and_only_those() -> None:
    fs = written(Options())
    first, second = published(fs, PATH, identity_of(fs))
    loss = loss_after(fs, PATH, identity_of(fs), first)
    assert (loss.epochs, loss.rows, loss.unreadable) == ((2,), (10, 0), ())
    assert loss_after(fs, PATH, identity_of(fs), second).rows == (0, 0)


def test_loss_counts_a_row_that_was_merged_once() -> None:
    fs = written(Options())
    with StateStore.open(PATH, fs=fs) as store:
        store.compact(major=True)
        store.snapshot_epoch(3)
    first = published(fs, PATH, identity_of(fs))[0]
    assert loss_after(fs, PATH, identity_of(fs), first).rows == (10, 0)


def test_epoch_that_no_manifest_tells_of_is_refused() -> None:
    fs = written(Options())
    with pytest.raises(
        EpochError, match="no manifest of epoch 9 can be read; those that can be gone back to are: 1, 2"
    ):
        recover(fs, PATH, identity_of(fs), 9)
