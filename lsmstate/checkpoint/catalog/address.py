"""Where a catalog lies: the URL that a user gave, taken apart, and what of it may be shown.

Owns the only copy of the credentials, inside SQLAlchemy's URL. `label` is what everybody else sees: a path, or server
and database. Threading: immutable.
Invariant: no text of an error here repeats what it could not understand, for that may be a password.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url

from iopool import FileSystem, above, make_dirs
from lsmstate.checkpoint.catalog.text import HIDDEN
from lsmstate.errors import CatalogError

WAIT_MS = 3_500  # for a lock, a statement or a connection: every answer comes within 5 s
_SHOWN = {"application_name", "connect_timeout", "dbname", "host", "port", "sslmode", "timeout"}  # of a query
_FORMS = "sqlite:///path/to/catalog.db, or postgresql://user:password@host/database"
_SCHEMES = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """label: fit to be shown. is_sqlite: a file of SQLite, else a database of PostgreSQL."""

    label: str
    is_sqlite: bool
    _url: URL = field(repr=False)

    def __repr__(self) -> str:
        return self.label

    @classmethod
    def parse(cls, fs: FileSystem, url: str) -> Address:
        """Understands a URL. For SQLite the path becomes absolute. Raises ValueError, never with the URL in it."""
        parsed = _parsed(url)
        if parsed.drivername == _SCHEMES["sqlite"]:
            if parsed.host or parsed.username or parsed.password or parsed.port:
                raise ValueError(
                    "a catalog on SQLite has a path and no host: sqlite:///relative or sqlite:////absolute"
                )
            path = parsed.database or ""
            if path.startswith("file:") or path in ("", ":memory:"):
                raise ValueError(f"a catalog on SQLite needs a file that stays: write {_FORMS}")
            _check_query(parsed)
            path = fs.resolve(path)
            return cls(_printable(path), True, parsed.set(database=path))
        if "@" in (parsed.host or "") + (parsed.database or ""):
            raise ValueError("the catalog's URL has an @ too many: write those of user and password as %40")
        host = parsed.host or _one(parsed.query.get("host")) or "local"
        port = f":{parsed.port}" if parsed.port else ""
        return cls(_printable(f"postgresql://{host}{port}/{parsed.database or ''}"), False, parsed)

    def engine(self) -> Engine:
        """An engine without a pool: who asks for a connection owns it. Parameters never show up in its errors."""
        args: dict[str, Any] = {}
        if self.is_sqlite:
            args = {"timeout": WAIT_MS / 1000, "isolation_level": None, "check_same_thread": False}
        else:
            args = {"connect_timeout": 4, "prepare_threshold": None, "application_name": "lsmstate"}
            args["tcp_user_timeout"] = WAIT_MS
        args = {name: value for name, value in args.items() if name not in self._url.query}
        try:
            return create_engine(self._url, poolclass=NullPool, hide_parameters=True, connect_args=args)
        except ModuleNotFoundError as error:
            missing = error.name
        raise CatalogError(f"catalog {self.label}: needs {missing}: pip install 'lsmstate[postgres]'", "driver")

    def make_file(self, fs: FileSystem) -> None:
        """Makes the file of SQLite, empty and private to its owner, and the directories above it. One may be there."""
        assert self._url.database is not None
        path = self._url.database
        make_dirs(fs, above(path))
        if fs.kind(path) is None:
            with contextlib.suppress(FileExistsError):
                fs.create(path).close()
                fs.sync_dir(above(path))

    def require_file(self, fs: FileSystem) -> None:
        """Raises CatalogError if the file of SQLite is gone: who still has it open would write where nobody reads."""
        if self.is_sqlite and fs.kind(self._url.database or "") is None:
            raise CatalogError(f"catalog {self.label}: its file is gone. Bring it back, and open it again", "down")

    def scrubbed(self, text: str) -> str:
        """The first line of a text of the driver, without the credentials. Later lines may tell values of rows."""
        text = text.strip().partition("\n")[0]
        secrets = [str(self._url.password or "")]
        secrets += [_one(value) for name, value in self._url.query.items() if name not in _SHOWN]
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, HIDDEN).replace(quote(secret, safe=""), HIDDEN)
        return _printable(text)[:300]


def _parsed(url: str) -> URL:
    if not isinstance(url, str):
        raise ValueError(f"a catalog's URL is a text: {_FORMS}")
    parsed = None
    with contextlib.suppress(Exception):  # its text repeats the URL
        parsed = make_url(url)
    if parsed is None or parsed.drivername not in _SCHEMES:
        raise ValueError(f"this is no URL of a catalog: write {_FORMS}")
    return parsed.set(drivername=_SCHEMES[parsed.drivername])


def _check_query(url: URL) -> None:
    """Of SQLite's options only the time to wait for a lock: others could undo what the catalog relies on."""
    try:
        fine = set(url.query) <= {"timeout"} and 0 <= float(_one(url.query.get("timeout", "0"))) <= 3600
    except ValueError:
        fine = False
    if not fine:
        raise ValueError(
            "a catalog on SQLite takes one option, the seconds to wait for a lock: sqlite:///path?timeout=2"
        )


def _one(value: str | tuple[str, ...] | None) -> str:
    return value if isinstance(value, str) else ",".join(value or ())


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)
