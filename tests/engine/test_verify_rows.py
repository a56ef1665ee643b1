"""`verify` finds rows that are there twice, and counts that lie, in whichever retained epoch they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lsmstate import StateStore
from lsmstate.manifest import names
from lsmstate.manifest.codec import decode, encode
from lsmstate.sstable.reader import StoredRun
from tests.support.simfs import SimFileSystem
from tests.support.states import PATH, World, batch

Tree = dict[str, bytes]
COPY = "000000000001-000001-copy-000001.sst"


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        with world.open() as store:
            for epoch in (1, 2, 3):
                store.append(0, batch(*((key, epoch * 10 + key, "a") for key in range(5))))
                store.append(1, batch((1, epoch, "b")))
                store.snapshot_epoch(epoch)
        yield world


def changed(world: World, epoch: int, change: Callable[[Tree, list[Any]], None]) -> SimFileSystem:
    """The state with another list of files in the manifest of an epoch, under all of its names."""
    tree: Tree = {path: data for path, data in world.fs.tree().items() if data is not None}
    parsed = {path: names.parse(path.rpartition("/")[2]) for path in tree if "/manifest/" in path}
    (path,) = (path for path, name in parsed.items() if name is not None and name.epoch == epoch)
    was = tree[path]
    own, body = decode(path, was)
    change(tree, body["files"] if "files" in body else body["added"])
    return SimFileSystem.of({p: encode(own, body) if data == was else data for p, data in tree.items()})


def twice(tree: Tree, files: list[Any]) -> None:
    again = json.loads(json.dumps(files[0]))
    tree[f"{PATH}/sst/{COPY}"] = tree[f"{PATH}/sst/{again[0]}"]
    files.append([COPY, *again[1:]])


def fewer(_: Tree, files: list[Any]) -> None:
    files[0] += [[[run[1], run[4], 1] for run in files[0][3]], 0]


@pytest.mark.parametrize("epoch", [1, 2, 3])
@pytest.mark.parametrize(
    ("change", "what"), [(twice, "a row is there twice"), (fewer, "1 rows are said to be left of a run of")]
)
def test_lie_about_rows_is_found_in_any_epoch(
    world: World, epoch: int, change: Callable[[Tree, list[Any]], None], what: str
) -> None:
    with StateStore.open(PATH, fs=changed(world, epoch, change), read_only=True) as store:
        problems = store.verify()
    assert {problem.path for problem in problems} == {PATH}
    assert all(problem.what.startswith(what) for problem in problems)
    assert {epoch for problem in problems for epoch in problem.epochs} >= {epoch}
    assert len(problems) == 1


def test_rows_that_epochs_share_are_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real, reads = StoredRun.ids, []

    def counted(run: StoredRun, *rows: Any) -> Any:
        reads.append(run)
        return real(run, *rows)

    monkeypatch.setattr(StoredRun, "ids", counted)
    with world.open(read_only=True) as store:
        assert store.verify() == []
        runs = sum(len(ref.runs) for ref in store.prepared_files())
    assert len(reads) == 2 * runs  # by the checks of each file, and by those of the whole; not once for each epoch
