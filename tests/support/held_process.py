"""A process that stops at a chosen file operation of what it does, and goes on when it is told to.

`HeldProcess` is the process as the other side sees it: forked from a warm one, so that it is there at once, and used
for many acts. An act opens a state, writes rows that bear the process's name, and is then held before its operation
number `hold`, counted from 0. Threading: none; the stores use a pool without threads, so that the operations of an act
come in one order.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from iopool import FileSystem, LocalFileSystem
from lsmstate import LsmStateError, Options, StateStore
from tests.support.crash_workload import InlinePool
from tests.support.states import batch, sides

EPOCH_US = 1000
KINDS = sides(retention=4 * EPOCH_US, bucket=EPOCH_US)
RETAIN = 2
UNHELD = -1


class Held:
    """A file system, a file or a lock, of which every call first asks `hold`."""

    def __init__(self, of: Any, hold: Callable[[], None]) -> None:
        self._of, self._hold = of, hold

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._of, name)

        def call(*arguments: Any) -> Any:
            self._hold()
            result = method(*arguments)
            return Held(result, self._hold) if name in ("create", "lock") and result is not None else result

        return call


def write(store: StateStore, who: str, epoch: int) -> None:
    """A row on each side, so that half an epoch is seen; the watermark retires what is four epochs old."""
    for side in (0, 1):
        store.append(side, batch((side, epoch * EPOCH_US, f"{who}{epoch}")))
    store.advance_watermark(epoch * EPOCH_US)


def open_state(path: str, fs: FileSystem | None = None, **options: Any) -> StateStore:
    """A handle without threads, that compacts only when it is told to."""
    chosen = Options(retain=RETAIN, auto_compact=False, **options)
    return StateStore.open(path, KINDS, chosen, fs=fs, pool=InlinePool())  # type: ignore[arg-type]


def commit(store: StateStore, epoch: int) -> None:
    store.snapshot_epoch(epoch)


def abort(store: StateStore, epoch: int) -> None:
    """Prepares, forgets it, and commits the rows in the same epoch after all."""
    store.prepare(epoch)
    store.abort(epoch)
    store.snapshot_epoch(epoch)


def compact(store: StateStore, epoch: int) -> None:
    """Merges, and commits an epoch that adopts the merge."""
    store.compact()
    store.snapshot_epoch(epoch)


def restore(store: StateStore, epoch: int) -> None:
    """Goes back to the first epoch that is retained; the rows that were written are not kept."""
    store.restore(store.epochs()[0])


ACTS: dict[str, Callable[[StateStore, int], None]] = {
    "commit": commit,
    "abort": abort,
    "compact": compact,
    "restore": restore,
}
LIFE = 3  # epochs: more than are retained


def do(told: dict[str, Any], who: str, pause: Callable[[], None]) -> dict[str, Any]:
    """Does an act; gives what came of it."""
    held = [False]

    def hold() -> None:
        if held[0]:
            pause()

    fs: Any = Held(LocalFileSystem(), hold)
    fs.resolve = LocalFileSystem().resolve
    if told["act"] == "candidate":
        return _candidate(told, who, fs, held)
    store = open_state(told["path"], fs)
    start = store.epochs()
    acts = [told["act"]] if told["act"] in ACTS else ["commit"] * LIFE
    try:
        for epoch, act in enumerate(acts, start[-1] + 1):
            write(store, who, epoch)
            held[0] = True
            ACTS[act](store, epoch)
    except LsmStateError as error:
        return {"start": start, "error": type(error).__name__, "collector": store.stats().collection_error}
    else:
        return {"start": start, "error": None, "collector": store.stats().collection_error}
    finally:
        held[0] = False
        store.close()


def _candidate(told: dict[str, Any], who: str, fs: Any, held: list[bool]) -> dict[str, Any]:
    """An attempt at an epoch, on a given parent, as a task of a job makes it."""
    options = Options(retain=RETAIN, auto_compact=False)
    with StateStore.open_candidate(
        told["path"],
        told["parent"],
        KINDS,
        options,
        fs=fs,
        pool=InlinePool(),  # type: ignore[arg-type]
    ) as store:
        write(store, who, told["epoch"])
        held[0] = True
        name = store.prepare(told["epoch"])
        store.retire(told["epoch"] - 1)
        held[0] = False
        return {"candidate": name, "error": None, "collector": store.stats().collection_error}


class HeldProcess:
    """The process as the other side sees it. Requires: it is used in a `with`, in a process with one thread."""

    def __init__(self, who: str) -> None:
        self.who = who
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(ours_in), os.close(ours_out)
                serve(who, theirs_in, theirs_out)
                code = 0
            finally:
                os._exit(code)
        os.close(theirs_in), os.close(theirs_out)
        self._answers, self._orders = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb", buffering=0)

    def start(self, hold: int, **told: Any) -> dict[str, Any] | None:
        """Begins an act; gives None when it is held, what came of it when it ended before that."""
        return self._told({"hold": hold, **told})

    def go_on(self) -> dict[str, Any]:
        """Lets it go on to its end; gives what came of it."""
        answer = self._told({})
        assert answer is not None
        return answer

    def _told(self, order: dict[str, Any]) -> dict[str, Any] | None:
        self._orders.write(json.dumps(order).encode() + b"\n")
        line = self._answers.readline()
        assert line, f"process {self.who} died"
        answer = json.loads(line)
        assert answer is None or "raised" not in answer, answer
        return answer  # type: ignore[no-any-return]

    def __enter__(self) -> HeldProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.close()  # the end of its input is its own
        os.waitpid(self.pid, 0)
        self._answers.close()


def serve(who: str, orders_fd: int, answers_fd: int) -> None:
    """The life of the process: an act for each line, until there are no more."""
    with os.fdopen(orders_fd, "rb") as orders, os.fdopen(answers_fd, "wb", buffering=0) as answers:
        for line in orders:
            told = json.loads(line)
            answers.write(json.dumps(_answer(told, who, pauses(told["hold"], orders, answers))).encode() + b"\n")


def _answer(told: dict[str, Any], who: str, pause: Callable[[], None]) -> dict[str, Any]:
    try:
        return do(told, who, pause)
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"}


def pauses(hold: int, orders: Any, answers: Any) -> Callable[[], None]:
    """What holds: says so before operation `hold`, and waits for a line."""
    steps: Iterator[int] = iter(range(1 << 30))

    def pause() -> None:
        if next(steps) == hold:
            answers.write(b"null\n")
            with contextlib.suppress(ValueError):
                orders.readline()

    return pause
