"""The connection of a catalog, and its transactions.

Owns one connection per process, made when first needed and again after it was lost. Threading: any thread; a lock lets
one transaction run at a time. A process that forks lets its connection go before, since SQLite's locks do not survive
in a child, and both connect again when they need to.

SQLite: WAL, synchronous=FULL, foreign keys; a write begins with BEGIN IMMEDIATE and so never meets a lock later on.
PostgreSQL: a write is READ COMMITTED and first locks the row of its job's fence; a read is REPEATABLE READ, so that
what it gives belongs together. Every wait has an end (`WAIT_MS`), also for a server that has stopped answering.
Invariant: what was written is durable when a call returns. All calls of the catalog may be repeated, so a transaction
whose connection was lost, or that met a conflict, is run again here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from iopool import FileSystem
from lsmstate.checkpoint.catalog.address import WAIT_MS, Address
from lsmstate.checkpoint.catalog.faults import CONFLICT, DOWN, told
from lsmstate.errors import CatalogError, EpochError, FencedError, StoreClosedError

T = TypeVar("T")

_TRIES = 5
_ANSWER_S = WAIT_MS / 1000 + 0.5
_ALONE = 0x6C736D73  # the advisory lock that makes a schema once

_POSTGRES_BEGIN = f"""SELECT set_config('lock_timeout', '{WAIT_MS}', true),
    set_config('statement_timeout', '{WAIT_MS}', true),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)"""


class Session:
    """The way to the database of a catalog."""

    def __init__(self, fs: FileSystem, address: Address) -> None:
        self._fs, self.address = fs, address
        self._engine = address.engine()
        if address.is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        self._was_cut = self._waits_for_fork = False
        _SESSIONS.add(self)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one consistent view of all tables."""
        isolation = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        return self._run(work, "BEGIN", isolation, _POSTGRES_BEGIN)

    def write(self, work: Callable[[Connection], T], *, alone: bool = False) -> T:
        """Runs `work` in a transaction that is durable when this returns. `alone`: no other like it runs meanwhile."""
        isolation = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
        then = f"SELECT pg_advisory_xact_lock({_ALONE})" if alone else ""
        return self._run(work, "BEGIN IMMEDIATE", isolation, _POSTGRES_BEGIN, then)

    def close(self) -> None:
        """Lets the connection go. May be repeated."""
        with self._lock:
            self._closed = True
            self._let_go()

    def _run(self, work: Callable[[Connection], T], sqlite_begin: str, *postgres_begin: str) -> T:
        begin = (sqlite_begin,) if self.address.is_sqlite else postgres_begin
        for tries_left in reversed(range(_TRIES)):
            used = self._connection is not None
            self._was_cut = False
            try:
                return self._once(work, begin)
            except DBAPIError as error:
                failure = told(error, self.address)
            except SQLAlchemyError as error:
                failure = CatalogError(f"catalog {self.address.label}: {type(error).__name__}", "other")
            lost = failure.reason == DOWN and used and not self._was_cut
            if not tries_left or not (failure.reason == CONFLICT or lost):
                break
        raise failure  # here, so that it has no context: the driver's errors are not ours to show

    def _once(self, work: Callable[[Connection], T], begin: tuple[str, ...]) -> T:
        with self._lock:
            if self._closed:
                raise StoreClosedError(f"catalog {self.address.label}: is closed; open it again")
            whole = False
            try:
                self.address.require_file(self._fs)
                connection = self._connected()
                with self._watched(connection), connection.begin():
                    for statement in filter(None, begin):
                        connection.exec_driver_sql(statement)
                    result = work(connection)
                whole = True
                return result
            except (EpochError, FencedError, ValueError):
                whole = True  # `work` has refused, and was rolled back
                raise
            finally:
                if not whole:  # also when interrupted: nobody knows what the connection is in the middle of
                    self._let_go()

    def _connected(self) -> Connection:
        driver: Any = self._connection.connection.driver_connection if self._connection is not None else None
        if not self.address.is_sqlite and driver is not None and driver.closed:
            self._let_go()
        if self._connection is None:
            deadline = time.monotonic() + WAIT_MS / 1000
            while True:
                try:
                    self._connection = self._engine.connect()
                    break
                except DBAPIError as error:  # making a file WAL does not wait for others who do the same
                    busy = told(error, self.address).reason == "locked" and self.address.is_sqlite
                    if not busy or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
        return self._connection

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.invalidate()
            with contextlib.suppress(Exception):
                connection.close()

    @contextlib.contextmanager
    def _watched(self, connection: Connection) -> Iterator[None]:
        """Cuts the line to a server that does not answer; the driver itself would wait for ever."""
        if self.address.is_sqlite:
            yield
            return
        driver: Any = connection.connection.driver_connection
        line = socket.fromfd(driver.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
        timer = threading.Timer(_ANSWER_S, self._cut, (line,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            line.close()

    def _cut(self, line: socket.socket) -> None:
        self._was_cut = True
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    # ---- forks

    def before_fork(self) -> None:
        """Waits for the transaction that runs, and lets the connection go."""
        self._waits_for_fork = self._lock.acquire(timeout=2 * _ANSWER_S)
        if self._waits_for_fork:
            self._let_go()

    def after_fork_in_parent(self) -> None:
        """Goes on."""
        if self._waits_for_fork:
            self._waits_for_fork = False
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begins anew: threads that held the lock are not here."""
        self._lock = threading.Lock()
        self._connection, self._waits_for_fork = None, False


def _prepare_sqlite(connection: Any, record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()


_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()  # fork handlers cannot be taken back: one for all sessions


def _each(act: Callable[[Session], None]) -> Callable[[], None]:
    def run() -> None:
        for session in list(_SESSIONS):
            act(session)

    return run


os.register_at_fork(
    before=_each(Session.before_fork),
    after_in_parent=_each(Session.after_fork_in_parent),
    after_in_child=_each(Session.after_fork_in_child),
)
