"""The version of the catalog's schema: made when absent, migrated when older, refused when newer.

Owns the row of `lsmstate_catalog`. All of it happens in one write transaction, so that a crash leaves the old version
whole, and of many that open an old catalog one migrates it.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, insert, inspect, select, text, update

from lsmstate.checkpoint.catalog.tables import METADATA, VERSIONS
from lsmstate.errors import CatalogError

VERSION = 2

_THE_ROW = 1


def _notes(connection: Connection) -> None:
    """Version 2: checkpoints have a note."""
    connection.execute(text("ALTER TABLE lsmstate_checkpoints ADD COLUMN note TEXT DEFAULT '' NOT NULL"))


# from version -> what makes it the next one
MIGRATIONS: dict[int, Callable[[Connection], None]] = {1: _notes}


def is_present(connection: Connection, label: str) -> bool:
    """Whether the schema is there in the present version. Raises CatalogError if it is of a newer one, or of none."""
    return _version(connection, label) == VERSION


def settle(connection: Connection, label: str) -> None:
    """Makes the schema, or brings an older one to the present version. Requires: a write transaction."""
    version = _version(connection, label)  # another may have been faster
    if version is None:
        METADATA.create_all(connection)
        connection.execute(insert(VERSIONS).values(id=_THE_ROW, version=VERSION))
        return
    for step in range(version, VERSION):
        MIGRATIONS[step](connection)
    connection.execute(update(VERSIONS).values(version=VERSION))


def _version(connection: Connection, label: str) -> int | None:
    if not inspect(connection).has_table(VERSIONS.name):
        return None
    version = connection.execute(select(VERSIONS.c.version).where(VERSIONS.c.id == _THE_ROW)).scalar_one_or_none()
    if version is None or version < 1:
        raise CatalogError(f"catalog {label}: does not say which version its schema has. Restore a backup", "damaged")
    if version > VERSION:
        raise CatalogError(
            f"catalog {label}: its schema has version {version}, this lsmstate knows up to {VERSION}; nothing was "
            "changed. Use the version of lsmstate that migrated it, or a newer one",
            "newer",
        )
    return int(version)
