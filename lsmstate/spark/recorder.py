"""The recorder: tells the catalog of a join's checkpoints, from what the listener hears.

It works in a thread of its own, so that a catalog that is slow, locked, down or of a newer schema costs the query
nothing: what goes wrong is logged once, in words, and tried again when the next batch has ended. The URL of the catalog
stays here: it is no part of the plan, of tasks, of the state, or of any message.
Threading: any thread may tell it of batches; one thread of its own talks to the catalog, started with the first word.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import queue
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from iopool import LocalFileSystem
from lsmstate.errors import CatalogError, FencedError, LsmStateError
from lsmstate.join.home import Home
from lsmstate.join.spec import JoinSpec
from lsmstate.spark.listener import EpochProgress, Listener

if TYPE_CHECKING:
    from lsmstate.checkpoint.catalog import Catalog
    from lsmstate.join.checkpoints import Checkpoints

_PATIENCE_S = 5.0  # at the end of the process
_OBJECT = re.compile(r"@[0-9a-f]+$")  # the address of an object, another in every run
_CLASS = re.compile(r"[\w.]+\.[\w$]+")
_PYTHON = "PythonMicroBatchStream"
_NOT_BEGUN = ("", "null", "None")
_log = logging.getLogger("lsmstate.spark")
_living: weakref.WeakSet[Recorder] = weakref.WeakSet()


def check_url(catalog: str) -> None:
    """Raises ValueError, without the URL in it, unless it can be that of a catalog. Connects to nothing."""
    from lsmstate.checkpoint.catalog.address import Address

    Address.parse(LocalFileSystem(), catalog)


def watch(listener: Listener, mark: str, spec: JoinSpec, catalog: str | None, interval_ms: int) -> None:
    """Records the checkpoints of a join from now on; no longer if there is no catalog."""
    recorder = None if catalog is None else Recorder(spec, catalog, interval_ms)
    listener.watch(mark, recorder)
    if recorder is not None:
        recorder.register()


class Recorder:
    """The recorder of one join."""

    def __init__(self, spec: JoinSpec, url: str, interval_ms: int) -> None:
        self._job, self._url = spec.job, url
        self._make: Callable[[], Checkpoints] = lambda: _checkpoints(spec, interval_ms, self._open)
        self._checkpoints: Checkpoints | None = None
        self._words: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._news = 0  # batches that were told, and not looked at yet
        self._fenced: set[str] = set()  # runs that another driver has replaced
        self._complained: tuple[str, str] | None = None
        _living.add(self)

    def __repr__(self) -> str:
        return f"Recorder({self._job!r})"

    # ---- in the threads of others

    def register(self) -> None:
        """Makes the job known, soon."""
        self._say(lambda: self._known().register())

    def batch_ended(self, epoch: EpochProgress, progress: Any) -> None:
        """A batch has ended: what is due is completed, soon."""

        def work() -> None:
            from lsmstate.join.checkpoints import Heard

            with self._lock:
                self._news -= 1
            run = str(progress.runId)
            starts, ends = offsets_of(progress.sources)
            self._known().hear(Heard(run, epoch.epoch, epoch.line, starts, ends, _sink(progress)))
            self._catch_up(run, is_over=False)

        with self._lock:
            self._news += 1
        self._say(work)

    def query_ended(self, run: str) -> None:
        """The last epoch gets a checkpoint too."""
        self._say(lambda: self._catch_up(run, is_over=True))

    def close(self) -> None:
        """Ends after what was said so far."""
        with self._lock:
            self._is_closed = True
            if self._thread is not None:
                self._words.put(None)

    def settle(self, seconds: float) -> bool:
        """Waits until all that was said so far is done, or the time is over."""
        done = threading.Event()
        self._say(done.set)
        return done.wait(seconds) if self._thread is not None else True

    def _say(self, word: Callable[[], None]) -> None:
        with self._lock:
            if self._is_closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"lsmstate {self._job}", daemon=True)
                self._thread.start()
            self._words.put(word)

    # ---- in its own thread

    def _work(self) -> None:
        while (word := self._words.get()) is not None:
            try:
                word()
            except (LsmStateError, OSError, ValueError) as error:
                self._complain(error)
            except Exception as error:  # whatever it is, it must not end the thread; and its text is not ours to show
                self._complain(LsmStateError(type(error).__name__))
        if self._checkpoints is not None:
            with contextlib.suppress(Exception):
                self._checkpoints.lose_catalog()

    def _known(self) -> Checkpoints:
        if self._checkpoints is None:
            self._checkpoints = self._make()
        return self._checkpoints

    def _catch_up(self, run: str, *, is_over: bool) -> None:
        checkpoints = self._known()
        if run in self._fenced or not checkpoints.is_of(run):
            return
        if not is_over and self._news:
            return  # a catalog that is slow should not be asked for each batch
        try:
            done = checkpoints.catch_up(is_over=is_over)
        except FencedError:
            self._fenced.add(run)
            raise
        except CatalogError:
            checkpoints.lose_catalog()
            raise
        if done:
            self._complained = None
            _log.info("%s: checkpoints of epochs %s", self._job, done)

    def _open(self) -> Catalog:
        from lsmstate.checkpoint.catalog import Catalog

        return Catalog.open(self._url)

    def _complain(self, error: Exception) -> None:
        """Once for each kind of trouble, until something has gone well."""
        kind = type(error).__name__, str(getattr(error, "reason", ""))
        if kind != self._complained:
            self._complained = kind
            then = "" if isinstance(error, FencedError) else "; it is tried again after the next batch"
            _log.warning("%s: no checkpoint: %s. The query goes on%s", self._job, error, then)


def _checkpoints(spec: JoinSpec, interval_ms: int, open_catalog: Callable[[], Catalog]) -> Checkpoints:
    from lsmstate.join.checkpoints import Checkpoints  # here, because workers import this module and need no catalog

    return Checkpoints(Home(LocalFileSystem(), spec.path), spec, interval_ms, open_catalog)


def offsets_of(sources: Iterable[Any]) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Where each source began and ended in a batch, as JSON by its description; without our ticker."""
    starts: dict[str, str | None] = {}
    ends: dict[str, str | None] = {}
    for source in sources:
        if _is_ticker(source.endOffset):
            continue
        described = name_of(source.description)
        name, number = described, 1
        while name in ends:  # equal descriptions: told apart by their order in the plan
            number += 1
            name = f"{described} #{number}"
        starts[name], ends[name] = _offset(source.startOffset), _offset(source.endOffset)
    return starts, ends


def name_of(description: object) -> str:
    """A source or a sink by its description: the same in every run."""
    told = _OBJECT.sub("", str(description)) or "unnamed"
    if _CLASS.fullmatch(told):
        told = told.rpartition(".")[2].rstrip("$")
    return "python" if told.startswith(_PYTHON) else told


def _offset(told: object) -> str | None:
    return None if told is None or str(told) in _NOT_BEGUN else str(told)


def _is_ticker(offset: object) -> bool:
    try:
        told = json.loads(str(offset))
    except ValueError:
        return False
    return isinstance(told, dict) and told.keys() == {"tick"}


def _sink(progress: Any) -> str:
    return name_of(getattr(progress.sink, "description", "") or "")


@atexit.register
def _settle_all() -> None:
    """What was heard before the process ends is told; but a catalog that hangs does not keep it."""
    deadline = time.monotonic() + _PATIENCE_S
    for recorder in list(_living):
        recorder.settle(max(0.0, deadline - time.monotonic()))
