"""Options of tables: `WITH ('name' = 'value')`, each known, each checked, and paths made absolute.

What comes out is what the catalog keeps: a table can be made from it anywhere, at any time. So it has no passwords,
which the catalog does not keep: leave them to PGPASSWORD or ~/.pgpass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from iopool import FileSystem
from lsmstate.checkpoint.catalog.rows import INTERVAL_DEFAULT_MS
from lsmstate.errors import SqlError
from lsmstate.sql.spans import span_us
from lsmstate.sql.statements import Option
from lsmstate.sql.text import Text

INTERVAL = "checkpoint.interval"
_INTERVAL_MAX_MS = 31_536_000_000
_SOURCES = {"parquet": (("path", "time"), ("delay", "follow"))}
_SINKS = {"parquet": (("path",), (INTERVAL, "ttl")), "database": (("url", "table"), (INTERVAL, "ttl"))}
_WHOLE = re.compile(r"[0-9]{1,11}", re.ASCII)
_TARGET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,54}", re.ASCII)
_YES_NO = {"true": "true", "false": "false"}


def table_options(text: Text, at: int, options: Sequence[Option], fs: FileSystem) -> dict[str, str]:
    """Those of a table that rows are read from. Raises SqlError."""
    return _checked(text, at, options, _SOURCES, fs)


def streaming_table_options(text: Text, at: int, options: Sequence[Option], fs: FileSystem) -> dict[str, str]:
    """Those of a streaming table. Raises SqlError."""
    return _checked(text, at, options, _SINKS, fs)


def interval_ms(options: Mapping[str, str]) -> int:
    """How often a streaming table makes a checkpoint. Raises ValueError if that is no number of milliseconds."""
    told = options.get(INTERVAL)
    if told is None:
        return INTERVAL_DEFAULT_MS
    if _WHOLE.fullmatch(told) is None or not 1 <= int(told) <= _INTERVAL_MAX_MS:
        raise ValueError(
            f"{told[:80]!r} is no interval: give whole milliseconds from 1 to {_INTERVAL_MAX_MS} (a year), such as "
            f"'5000'; left out, it is {INTERVAL_DEFAULT_MS}"
        )
    return int(told)


def _checked(
    text: Text,
    at: int,
    options: Sequence[Option],
    connectors: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]],
    fs: FileSystem,
) -> dict[str, str]:
    given = {option.name: option for option in options}
    connector = given.get("connector")
    known = " or ".join(f"'{name}'" for name in connectors)
    if connector is None:
        raise text.refuse(at, f"the option 'connector' is missing: it is {known} here")
    if connector.value not in connectors:
        raise text.refuse(connector.at, f"there is no connector {connector.value[:80]!r} here: it is {known}")
    needed, more = connectors[connector.value]
    for option in options:
        if option.name not in ("connector", *needed, *more):
            told = ", ".join(f"'{name}'" for name in ("connector", *needed, *more))
            raise text.refuse(option.at, f"the option {option.name[:80]!r} is unknown here; the known ones are {told}")
    for name in needed:
        if name not in given:
            raise text.refuse(at, f"the option '{name}' is missing: connector '{connector.value}' needs it")
    return {name: _value(text, option, fs) for name, option in given.items()}


def _value(text: Text, option: Option, fs: FileSystem) -> str:
    """The value of an option as it is kept."""
    try:
        match option.name:
            case "path":
                return _path(option.value, fs)
            case "delay" | "ttl":
                if span_us(option.value) < (0 if option.name == "delay" else 1):
                    raise ValueError(f"{option.value[:80]!r} is too short")
            case "checkpoint.interval":
                interval_ms({INTERVAL: option.value})
            case "follow":
                if option.value not in _YES_NO:
                    raise ValueError(f"{option.value[:80]!r} is neither 'true' nor 'false'")
            case "url":
                return _url(option.value, fs)
            case "table":
                if _TARGET.fullmatch(option.value) is None:
                    raise ValueError(f"{option.value[:80]!r} is no name of a table: letters, digits and _")
            case _:
                if not option.value:
                    raise ValueError("must not be empty")
    except ValueError as error:
        raise _refused(text, option, error) from None
    return option.value


def _refused(text: Text, option: Option, error: ValueError) -> SqlError:
    return text.refuse(option.at, f"option '{option.name}': {error}")


def _path(path: str, fs: FileSystem) -> str:
    if not path or "\0" in path:
        raise ValueError("a path must not be empty")
    if "://" in path:
        raise ValueError("a path is a directory of this machine, not a URL")
    return fs.resolve(path)


def _url(url: str, fs: FileSystem) -> str:
    """A URL of a database; for SQLite with an absolute path. Never shown in an error: it may hold a password."""
    from lsmstate.checkpoint.catalog.address import Address  # SQLAlchemy is slow to import
    from lsmstate.checkpoint.catalog.text import without_credentials

    address = Address.parse(fs, url)
    if address.is_sqlite:
        return f"sqlite:///{address.label}"
    if without_credentials(url) != url:
        raise ValueError(
            "the catalog keeps no passwords, and could not bring the table back: leave it out of the URL, and set "
            "PGPASSWORD or ~/.pgpass"
        )
    return url
