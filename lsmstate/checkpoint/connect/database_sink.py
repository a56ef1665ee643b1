"""A sink that is a table of a database, on SQLite or PostgreSQL.

    sink = DatabaseSink("postgresql://user:password@host/db", "clicks")

Rows go to a staging table first, in chunks. `pre_commit` says which of them belong to an epoch, and `commit` moves them
into the table, in one transaction with the note that it was done. Three tables of ours stand beside the user's:

    lsmstate_sinks          a row for each table: whose it is, its generation, the last epoch, the last chunk
    lsmstate_sink_parts     the parts that are staged: rows between two pre-commits, and their epoch
    TABLE__staged           the rows, with generation and part

Every transaction first compares the generation, and so locks its row: a sink that was replaced gets FencedError, and
can change nothing. Every transaction may be repeated, so a connection that is lost loses nothing. What a table may
refuse at the end (a unique key, a check) only the database can know: keep such things out of it.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import Connection

from iopool import FileSystem, LocalFileSystem
from lsmstate.checkpoint.catalog.address import Address
from lsmstate.checkpoint.catalog.text import escaped
from lsmstate.checkpoint.connect.database_columns import NAME_MAX_BYTES, Kind, check_table, kind_of, values_of
from lsmstate.checkpoint.connect.database_link import Link
from lsmstate.checkpoint.connect.sink import check_fits, check_next, check_staged, checked_opening
from lsmstate.engine.epochs import check_epoch
from lsmstate.errors import EpochError, FencedError, NotAStateError, SchemaError, StoreClosedError

_CHUNK_ROWS = 2000
_STAGED = "__staged"
_GENERATION, _PART = "lsmstate_generation", "lsmstate_part"
_TABLE_MAX_BYTES = NAME_MAX_BYTES - len(_STAGED)

_OURS = sa.MetaData()
_SINKS = sa.Table(
    "lsmstate_sinks",
    _OURS,
    sa.Column("target", sa.String(NAME_MAX_BYTES), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("chunk", sa.BigInteger, nullable=False),
)
_PARTS = sa.Table(
    "lsmstate_sink_parts",
    _OURS,
    sa.Column("target", sa.String(NAME_MAX_BYTES), primary_key=True),
    sa.Column("generation", sa.BigInteger, primary_key=True),
    sa.Column("part", sa.BigInteger, primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)


class DatabaseSink:
    """Adds what it is given to a table, epoch by epoch; see `Sink`. The table is made if it is not there."""

    def __init__(self, url: str, table: str, *, fs: FileSystem | None = None) -> None:
        if not isinstance(table, str) or not table or "\0" in table or len(table.encode()) > _TABLE_MAX_BYTES:
            raise ValueError(f"the name of a table is a text of 1 to {_TABLE_MAX_BYTES} bytes")
        self._fs = fs or LocalFileSystem()
        self._address = Address.parse(self._fs, url)
        self._target = table
        self._lock = threading.RLock()
        self._link: Link | None = None

    def __repr__(self) -> str:
        return f"DatabaseSink({self._address.label!r}, {self._target!r})"

    def open(self, name: str, committed_epoch: int | None) -> None:
        committed = checked_opening(name, committed_epoch)
        with self._lock:
            self.close()
            link = Link(self._fs, self._address, repr(self))
            try:
                link.write(self._make_ours)
                self._generation = link.write(lambda c: self._taken_over(c, escaped(name), committed))
            except BaseException:
                link.close()
                raise
            self._committed, self._chunk, self._part = committed, 0, 1
            self._schema: pa.Schema | None = None
            self._kinds: dict[str, Kind] = {}
            self._staging: sa.Table | None = None
            self._waiting: list[dict[str, Any]] = []
            self._parts: dict[int, list[int]] = {}  # of epochs that are not committed
            self._carried: list[int] = []  # of epochs that were aborted
            self._link = link

    def write(self, batch: pa.RecordBatch) -> None:
        with self._lock:
            link = self._ready()
            schema = self._schema or getattr(batch, "schema", pa.schema([])).remove_metadata()
            check_fits(repr(self), schema, batch)
            kinds, lite = self._kinds or self._kinds_of(schema), self._address.is_sqlite
            columns = [
                values_of(repr(self), field, kinds[field.name], column, lite)
                for field, column in zip(schema, batch.columns, strict=True)
            ]
            if self._schema is None:
                self._staging = link.write(lambda c: self._make_tables(c, schema, kinds))
                self._schema, self._kinds = schema, kinds
            names = [_key(number) for number in range(len(columns))]
            marks = {"g": self._generation, "p": self._part}
            self._waiting += [marks | dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            while len(self._waiting) >= _CHUNK_ROWS:
                self._flush(link, _CHUNK_ROWS)

    def pre_commit(self, epoch: int) -> dict[str, Any]:
        check_epoch(epoch)
        with self._lock:
            link = self._ready()
            check_next(repr(self), epoch, self._committed, self._parts)
            while self._waiting:
                self._flush(link, _CHUNK_ROWS)
            parts = [*self._carried, self._part]
            link.write(lambda c: self._note_parts(c, parts, epoch))
            self._parts[epoch], self._carried = parts, []
            self._part += 1
            return {"table": self._target, "generation": self._generation, "parts": parts}

    def commit(self, epoch: int) -> None:
        check_epoch(epoch)
        with self._lock:
            link = self._ready()
            if epoch > self._committed:
                check_staged(repr(self), epoch, self._parts)
            link.write(lambda c: self._publish(c, epoch))
            self._parts = {staged: parts for staged, parts in self._parts.items() if staged > epoch}
            self._committed = max(epoch, self._committed)

    def abort(self, epoch: int) -> None:
        check_epoch(epoch)
        with self._lock:
            self._ready()
            self._carried += self._parts.pop(epoch, [])

    def close(self) -> None:
        with self._lock:
            link, self._link = self._link, None
            if link is not None:
                link.close()

    # ---- transactions

    def _make_ours(self, connection: Connection) -> None:
        if not self._address.is_sqlite:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1819503987)")  # two makers at once would clash
        _OURS.create_all(connection)

    def _taken_over(self, connection: Connection, name: str, committed: int) -> int:
        """Opens a new generation: publishes what was decided, drops the rest. Gives its number."""
        found = connection.execute(sa.select(_SINKS).where(self._mine(_SINKS)).with_for_update()).one_or_none()
        if found is None:
            first = {"target": self._target, "name": name, "generation": 1, "epoch": committed, "chunk": 0}
            connection.execute(sa.insert(_SINKS), [first])
            return 1
        if found.name != name:
            raise NotAStateError(f"{self!r}: belongs to {found.name!r:.200}, not to {name!r:.200}; name another table")
        if found.epoch > committed:
            raise EpochError(
                f"{self!r}: holds epochs up to {found.epoch}, and the job stands at {committed}; rows of a table "
                "cannot be taken back. Name another table, or restore a copy of this one"
            )
        staging = self._found_staging(connection)
        self._move(connection, found.generation, committed, staging)
        if staging is not None:
            connection.execute(sa.delete(staging))
        connection.execute(sa.delete(_PARTS).where(self._mine(_PARTS)))
        values = {"generation": found.generation + 1, "epoch": committed, "chunk": 0}
        connection.execute(sa.update(_SINKS).where(self._mine(_SINKS)).values(values))
        return int(found.generation) + 1

    def _publish(self, connection: Connection, epoch: int) -> None:
        if self._fenced(connection).epoch >= epoch:
            return
        self._move(connection, self._generation, epoch, self._staging)
        connection.execute(sa.update(_SINKS).where(self._mine(_SINKS)).values(epoch=epoch))

    def _note_parts(self, connection: Connection, parts: list[int], epoch: int) -> None:
        self._fenced(connection)
        mine = (self._mine(_PARTS), _PARTS.c.generation == self._generation, _PARTS.c.part.in_(parts))
        connection.execute(sa.delete(_PARTS).where(*mine))
        rows = [{"target": self._target, "generation": self._generation, "part": n, "epoch": epoch} for n in parts]
        connection.execute(sa.insert(_PARTS), rows)

    def _insert(self, connection: Connection, chunk: int, rows: list[dict[str, Any]]) -> None:
        if self._fenced(connection).chunk >= chunk:
            return  # it was done, and the answer was lost
        assert self._staging is not None
        connection.execute(sa.insert(self._staging), rows)
        connection.execute(sa.update(_SINKS).where(self._mine(_SINKS)).values(chunk=chunk))

    def _make_tables(self, connection: Connection, schema: pa.Schema, kinds: dict[str, Kind]) -> sa.Table:
        """The target and the staging table, made or found to fit. Gives the latter."""
        self._fenced(connection)
        asked = sa.inspect(connection)
        if asked.has_table(self._target):
            check_table(repr(self), kinds, schema, asked.get_columns(self._target), self._address.is_sqlite)
        else:
            columns = [sa.Column(name, kind.type, nullable=schema.field(name).nullable) for name, kind in kinds.items()]
            sa.Table(self._target, sa.MetaData(), *columns).create(connection)
        marks = [
            sa.Column(name, sa.BigInteger, nullable=False, key=key) for name, key in ((_GENERATION, "g"), (_PART, "p"))
        ]
        copied = [sa.Column(name, kind.type, key=_key(number)) for number, (name, kind) in enumerate(kinds.items())]
        staging = sa.Table(self._target + _STAGED, sa.MetaData(), *marks, *copied)
        if asked.has_table(staging.name):  # empty, or of this generation alone
            there = [(str(c["name"]), str(c["type"])) for c in asked.get_columns(staging.name)]
            if there == [(c.name, c.type.compile(connection.dialect)) for c in staging.columns]:
                return staging
            staging.drop(connection)
        staging.create(connection)
        return staging

    def _move(self, connection: Connection, generation: int, epoch: int, staging: sa.TableClause | None) -> None:
        """Moves the staged rows of a generation, up to an epoch, into the target."""
        due = (self._mine(_PARTS), _PARTS.c.generation == generation, _PARTS.c.epoch <= epoch)
        if staging is not None:
            of_generation, of_part, *values = staging.columns
            chosen = (of_generation == generation, of_part.in_(sa.select(_PARTS.c.part).where(*due)))
            names = [column.name for column in values]
            target = sa.table(sa.quoted_name(self._target, True), *(sa.column(name) for name in names))
            connection.execute(sa.insert(target).from_select(names, sa.select(*values).where(*chosen)))
            connection.execute(sa.delete(staging).where(*chosen))
        connection.execute(sa.delete(_PARTS).where(*due))

    def _found_staging(self, connection: Connection) -> sa.TableClause | None:
        """The staging table of earlier generations; None if they wrote nothing."""
        asked, name = sa.inspect(connection), self._target + _STAGED
        if not asked.has_table(name):
            return None
        columns: list[Any] = [sa.column(str(column["name"])) for column in asked.get_columns(name)]
        return sa.table(sa.quoted_name(name, True), *columns)

    def _fenced(self, connection: Connection) -> Any:
        """The row of this sink, locked till the end of the transaction. Raises FencedError if it is another's now."""
        found = connection.execute(sa.select(_SINKS).where(self._mine(_SINKS)).with_for_update()).one_or_none()
        if found is None or found.generation != self._generation:
            now = "removed" if found is None else f"opened again by another (generation {found.generation})"
            raise FencedError(f"{self!r}: {now}, this is generation {self._generation}; open the sink again to go on")
        return found

    def _mine(self, table: sa.Table) -> sa.ColumnElement[bool]:
        return table.c.target == self._target

    # ---- inside

    def _kinds_of(self, schema: pa.Schema) -> dict[str, Kind]:
        """What the columns become. Raises SchemaError for those that a database cannot have."""
        names = schema.names
        if not names or len(set(names)) != len(names) or any(name in (_GENERATION, _PART) for name in names):
            raise SchemaError(f"{self!r}: at least one column is needed, no two of one name, none named {_PART!r}")
        if any(not name or "\0" in name or len(name.encode()) > NAME_MAX_BYTES for name in names):
            raise SchemaError(f"{self!r}: names of columns have 1 to {NAME_MAX_BYTES} bytes; rename the others")
        return {field.name: kind_of(repr(self), field, self._address.is_sqlite) for field in schema}

    def _flush(self, link: Link, rows: int) -> None:
        chunk, number = self._waiting[:rows], self._chunk + 1
        link.write(lambda c: self._insert(c, number, chunk))
        self._chunk = number
        del self._waiting[:rows]

    def _ready(self) -> Link:
        if self._link is None:
            raise StoreClosedError(f"{self!r}: is not open; call open")
        return self._link


def _key(number: int) -> str:
    """What a column is called in statements: its own name may hold anything."""
    return f"c{number}"
