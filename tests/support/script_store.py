"""What the scripts of `tests.support.script` do with stores: epochs whose rows everybody knows, children that check.

An epoch N holds a row on each of two sides, with the time N ms; four epochs are kept alive by the watermark. Threading:
none of its own.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from lsmstate import Options, StateStore, View
from tests.support.held_process import EPOCH_US, KINDS
from tests.support.states import batch, plain

ALIVE = 4


def opened(path: str, options: Options | None = None, **more: Any) -> StateStore:
    """A handle that compacts in the background."""
    return StateStore.open(path, KINDS, options or Options(retain=3), **more)


def write(store: StateStore, epoch: int) -> None:
    """The rows of an epoch."""
    for side in (0, 1):
        store.append(side, batch((epoch, epoch * EPOCH_US, "x")))
    store.advance_watermark(epoch * EPOCH_US)


def commit(store: StateStore, first: int, last: int) -> None:
    """Epochs with their rows."""
    for epoch in range(first, last + 1):
        write(store, epoch)
        store.snapshot_epoch(epoch)


def keys(view: View | StateStore, side: int = 0) -> list[int]:
    """The epochs whose rows can be read."""
    return sorted(row[0] for row in plain(view.scan(side)))


def check(path: str, last: int) -> None:
    """The state is at this epoch, with its rows, and sound."""
    with StateStore.open(path, KINDS, read_only=True) as store:
        assert store.epochs()[-1] == last, (store.epochs(), last)
        for side in (0, 1):
            assert keys(store, side) == list(range(max(1, last - ALIVE + 1), last + 1)), keys(store, side)
        assert store.verify() == []


def refused(act: Callable[[], object]) -> str:
    """The name of the error that an act ends with."""
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def in_child(act: Callable[[], object]) -> int:
    """Forks; the child does the act and ends without cleaning up, as Spark's workers do. Gives its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def mapped_files(suffix: str = ".sst") -> int:
    """How many files of states this process maps."""
    with open("/proc/self/maps") as maps:
        return sum(line.rstrip().removesuffix(" (deleted)").endswith(suffix) for line in maps)


def pool_threads() -> list[str]:
    """The threads of pools that live: not the one that works ahead, which belongs to the process."""
    return [t.name for t in threading.enumerate() if t.name.startswith("iopool-") and t.name != "iopool-ahead"]
