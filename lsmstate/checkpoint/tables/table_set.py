"""The state tables of an operator: global keyed ones, and ones whose rows expire by time and key.

    tables = context.tables
    users = tables.keyed("users", schema, ["user"])         # the latest row of each key
    seen = tables.expiring("seen", [side])                  # a StateStore
    tables.prepare(1); tables.commit(1)                     # all of them, by the runtime

Each lies in a directory of its own below the operator's. Opened again, each goes to the safe epoch: back to it, or on
to it where it was made durable and the commit did not come. Threading: belongs to the operator's thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from iopool import FileSystem, LocalFileSystem, MemoryController, WorkerPool
from lsmstate.checkpoint.manifest.lsm_files import lsm_state
from lsmstate.checkpoint.manifest.operator_state import OperatorState
from lsmstate.checkpoint.tables.keyed_table import Found, KeyedTable, keyed_side
from lsmstate.engine import StateStore
from lsmstate.errors import EpochError, LsmStateError, StoreClosedError
from lsmstate.manifest import names
from lsmstate.options import Options
from lsmstate.schema import Side

__all__ = ["Found", "KeyedTable", "TableSet"]


class _Table(Protocol):
    def prepare(self, epoch: int) -> str: ...

    def commit(self, epoch: int) -> None: ...

    def abort(self, epoch: int) -> None: ...

    def close(self) -> None: ...


class TableSet:
    """All tables of one operator. safe_epoch: where to go on, the last committed epoch unless told. candidates: what
    `prepare` gave for it, by table; None if that is not known. Tables that it lacks are new."""

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        fs: FileSystem | None = None,
        pool: WorkerPool | None = None,
        memory: MemoryController | None = None,
        safe_epoch: int | None = None,
        candidates: Mapping[str, str] | None = None,
        options: Options | None = None,
    ) -> None:
        self._fs = fs or LocalFileSystem()
        self.path = self._fs.resolve(os.fspath(state_dir))
        self._pool, self._memory, self._options = pool, memory, options
        self._safe, self._told = safe_epoch, candidates
        self._tables: dict[str, _Table] = {}
        self._candidates: dict[str, str] = {}
        self._prepared: dict[str, int] = {}
        self._closed = False

    def keyed(self, name: str, schema: pa.Schema, keys: Sequence[str]) -> KeyedTable:
        """The table of this name: the latest row of each key. Keys are what Spark can compare."""
        store = self._open(name, [keyed_side(name, schema, keys)])
        try:
            self._tables[name] = table = KeyedTable(store, schema)
        except BaseException:
            store.close()
            raise
        return table

    def expiring(self, name: str, sides: Sequence[Side]) -> StateStore:
        """The table of this name: rows by key and time, that go when the watermark has passed their retention."""
        store = self._open(name, sides)
        self._tables[name] = store
        return store

    def path_of(self, name: str) -> str:
        """Where a table lies."""
        return f"{self.path}/{_directory(name)}"

    @property
    def candidates(self) -> dict[str, str]:
        """What each table goes on from: what was prepared last, or what it was opened at."""
        return dict(self._candidates)

    def states(self, directory: str) -> dict[str, OperatorState]:
        """What a checkpoint tells of the tables; `directory` is the operator's, relative to the job's."""
        told = {}
        unopened = {name: at for name, at in (self._told or {}).items() if name not in self._tables}
        for name, candidate in {**unopened, **self._candidates}.items():
            state = lsm_state(self._fs, self.path, _directory(name), candidate)
            told[name] = OperatorState(lsm=replace(state, directory=f"{directory}/{_directory(name)}"))
        return told

    def prepare(self, epoch: int) -> dict[str, str]:
        """Makes all tables durable as candidates of an epoch, or none of them; gives the candidates by table."""
        before = dict(self._candidates)
        try:
            for name, table in self._tables.items():
                self._candidates[name] = table.prepare(epoch)
                self._prepared[name] = epoch
        except BaseException:
            self._candidates = before
            self.abort(epoch)
            raise
        return dict(self._candidates)

    def commit(self, epoch: int) -> None:
        """A prepared epoch counts. A table that was not prepared for it stays where it is."""
        for name, table in self._tables.items():
            if self._prepared.get(name) == epoch:
                table.commit(epoch)
                del self._prepared[name]

    def abort(self, epoch: int) -> None:
        """A prepared epoch does not count: what was written goes into the next one."""
        for name, table in self._tables.items():
            if self._prepared.get(name) == epoch:
                table.abort(epoch)
                del self._prepared[name]
                self._remember(name, _store_of(table))

    def close(self) -> None:
        """Closes all tables. May be called again."""
        self._closed = True
        for table in self._tables.values():
            table.close()

    def __enter__(self) -> TableSet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside

    def _open(self, name: str, sides: Sequence[Side]) -> StateStore:
        if self._closed:
            raise StoreClosedError(f"{self.path}: the tables are closed")
        if not isinstance(name, str) or not names.is_safe(name) or len(name) > 100:
            raise ValueError(
                f"a table's name is 1 to 100 of the characters 0-9, a-z, '.', '_' and '-', not {name!r:.120}"
            )
        if name in self._tables:
            raise LsmStateError(f"{self.path}: there is a table {name!r} already; give each one a name of its own")
        path = self.path_of(name)
        store = StateStore.open(path, sides, self._options, fs=self._fs, pool=self._pool, memory=self._memory)
        try:
            self._go_to(name, path, store)
            self._remember(name, store)
        except BaseException:
            store.close()
            raise
        return store

    def _go_to(self, name: str, path: str, store: StateStore) -> None:
        known, safe, candidate = store.epochs(), self._safe, None
        last = known[-1] if known else 0
        if self._told is not None:
            candidate = self._told.get(name)
            if candidate is None and not last:
                return  # a new table; or one whose first epoch did not count
        parsed = None if candidate is None else names.parse(candidate)
        if safe is not None and parsed is not None:
            safe = parsed.epoch  # where the operator skipped the table, it is of an earlier epoch
        if safe is None or safe == last:
            return
        if safe == 0 or (candidate is None and self._told is not None):
            raise EpochError(
                f"{path}: holds epoch {last}, and the checkpoint of epoch {safe} knows nothing of this table; to start "
                "anew give it another name, or the operator another directory"
            )
        if safe > last:
            store.commit(safe, candidate=candidate)
        else:
            store.restore(safe)

    def _remember(self, name: str, store: StateStore) -> None:
        head = store._core.head.manifest
        self._candidates.pop(name, None)
        if head is not None:
            self._candidates[name] = head.name


def _directory(name: str) -> str:
    return f"table-{name}"


def _store_of(table: _Table) -> StateStore:
    store = table.store if isinstance(table, KeyedTable) else table
    assert isinstance(store, StateStore)
    return store
