"""Asking a state on disk why: that of a join on Spark, or that of an operator, beside the job or without it."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pyarrow as pa

from iopool import FileSystem, LocalFileSystem
from lsmstate.engine import StateStore
from lsmstate.errors import EpochError, NotAStateError, SnapshotExpired
from lsmstate.hashing import hash_keys
from lsmstate.join.history import history_of
from lsmstate.join.home import Home, is_home
from lsmstate.join.kinds import Kind
from lsmstate.join.partition import partition_of
from lsmstate.join.reading import job_of, state_at
from lsmstate.join.spec import SIDES
from lsmstate.join.why import At, Why, explain, key_array
from lsmstate.schema import Side

_EPOCHS_ASKED = 32  # that lie back


def why(path: str | os.PathLike[str], side: str, key: object, epoch: int | None = None) -> Why:
    """What became of the rows of a side ("left" or "right") with a key, as of an epoch; the newest unless told.

    `key` is a value, or a tuple of them where the key has several columns: Python's, or pyarrow Scalars of the columns'
    types. `.text` tells it in words.
    """
    if side not in SIDES:
        raise ValueError(f"side must be 'left' or 'right', not {side!r}")
    fs = LocalFileSystem()
    resolved = fs.resolve(os.fspath(path))
    asked = _of_home if is_home(fs, resolved) else _of_operator
    return asked(fs, resolved, SIDES.index(side), key, epoch)


def sides_of(fs: FileSystem, path: str) -> tuple[Side, Side]:
    """The sides of the join whose state this is."""
    if is_home(fs, path):
        return job_of(Home(fs, path)).sides
    with StateStore.open(path, read_only=True, fs=fs) as store:
        _kind_of(path, store)
        return store.sides[0], store.sides[1]


def _of_home(fs: FileSystem, path: str, side: int, key: object, epoch: int | None) -> Why:
    newest = state_at(fs, path, epoch)
    job = newest.job
    number = _partition(job.sides[side], key, job.partitions)
    epochs = [each for each in history_of(newest.home, job.partitions).readable if each <= newest.epoch]
    with ExitStack() as stack:
        past: list[At] = []
        for each in epochs[-_EPOCHS_ASKED:]:
            try:
                store = stack.enter_context(state_at(fs, path, each).partition(number))
                past.append((each, stack.enter_context(store.snapshot())))
            except (EpochError, SnapshotExpired):
                if each == newest.epoch:
                    raise  # an older one was retired meanwhile: the others tell enough
        return explain(past, job.sides, job.kind, side, key)


def _of_operator(fs: FileSystem, path: str, side: int, key: object, epoch: int | None) -> Why:
    with ExitStack() as stack:
        store = stack.enter_context(StateStore.open(path, read_only=True, fs=fs))
        kind = _kind_of(path, store)
        known = store.epochs()
        if not known:
            raise EpochError(f"{path}: no epoch is committed yet, so there is nothing to ask about")
        last = known[-1] if epoch is None else epoch
        if last not in known:
            told = ", ".join(map(str, known))
            raise EpochError(f"{path}: epoch {last} does not exist, or was retired; there are: {told}")
        epochs = [each for each in known if each <= last][-_EPOCHS_ASKED:]
        past: list[At] = [(each, stack.enter_context(store.at_epoch(each))) for each in epochs]
        return explain(past, (store.sides[0], store.sides[1]), kind, side, key)


def _kind_of(path: str, store: StateStore) -> Kind:
    told = store.meta.get("join")
    if told is None or len(store.sides) < len(SIDES):
        raise NotAStateError(f"{path}: is no state of a join; name the directory of an operator, or a state=")
    return Kind(**told["kind"])


def _partition(side: Side, key: object, partitions: int) -> int:
    values = tuple(key) if isinstance(key, tuple | list) else (key,)
    kinds = [side.schema.field(name).type for name in side.keys]
    try:
        arrays = [key_array(value, kind) for value, kind in zip(values, kinds, strict=True)]
    except (pa.ArrowException, ValueError, TypeError) as error:
        told = ", ".join(f"{name} ({kind})" for name, kind in zip(side.keys, kinds, strict=True))
        raise ValueError(f"the key does not fit; it is {told}") from error
    return int(partition_of(hash_keys(arrays).view("int64"), partitions)[0])
