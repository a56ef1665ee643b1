"""The way of a sink to its database: one connection, transactions that may be repeated, errors in words.

Threading: used under the sink's lock. Every transaction of a sink may be repeated (each compares before it sets), so
one whose connection was lost, or that met a conflict, is run again here. Invariant: errors show neither credentials
nor values of rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from iopool import FileSystem
from lsmstate.checkpoint.catalog.address import Address
from lsmstate.checkpoint.catalog.faults import CONFLICT, DOWN, reason_of
from lsmstate.errors import CheckpointError

T = TypeVar("T")

_TRIES = 5
_POSTGRES_BEGIN = """SELECT set_config('lock_timeout', '60000', true),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)"""


class Link:
    """A connection that is made when it is needed."""

    def __init__(self, fs: FileSystem, address: Address, what: str) -> None:
        self.address, self._what = address, what
        if address.is_sqlite:
            address.make_file(fs)
        self._engine = address.engine()
        if address.is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
        self._connection: Connection | None = None

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction that is durable when this returns. `work` must bear being repeated."""
        for tries_left in reversed(range(_TRIES)):
            used = self._connection is not None
            try:
                return self._once(work)
            except DBAPIError as error:
                reason = reason_of(error, self.address.is_sqlite)
                failure = CheckpointError(
                    f"{self._what}: the database refused ({reason}). It said: {self._said(error)}"
                )
            except SQLAlchemyError as error:
                reason, failure = "other", CheckpointError(f"{self._what}: {type(error).__name__}")
            if not tries_left or not (reason == CONFLICT or (reason == DOWN and used)):
                break
        raise failure  # here, so that it has no context: the driver's errors are not ours to show

    def close(self) -> None:
        """Lets the connection go. May be repeated."""
        connection, self._connection = self._connection, None
        if connection is not None:
            for end in (connection.invalidate, connection.close):
                with contextlib.suppress(Exception):
                    end()

    def _once(self, work: Callable[[Connection], T]) -> T:
        whole = False
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            with self._connection.begin():
                self._connection.exec_driver_sql("BEGIN IMMEDIATE" if self.address.is_sqlite else _POSTGRES_BEGIN)
                result = work(self._connection)
            whole = True
            return result
        finally:
            if not whole:  # also when interrupted: nobody knows what the connection is in the middle of
                self.close()

    def _said(self, error: DBAPIError) -> str:
        diagnosis: Any = getattr(error.orig, "diag", None)
        primary = getattr(diagnosis, "message_primary", None)  # the details may hold values
        return self.address.scrubbed(str(primary or error.orig))


def _prepare_sqlite(connection: Any, record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
