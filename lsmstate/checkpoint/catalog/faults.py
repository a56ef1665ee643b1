"""What an error of a database means, in words: one CatalogError for each thing that a reader can do something about.

Threading: functions without state. Invariant: the driver's own text passes only through `Address.scrubbed`.
"""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from lsmstate.checkpoint.catalog.address import Address
from lsmstate.errors import CatalogError

CONFLICT = "conflict"
DOWN = "down"

_SAYS = {
    DOWN: "cannot be reached. Start its server, correct the URL or the rights of the file, and repeat the call: "
    "repeating is safe",
    "locked": "is locked by another process for too long. See who holds it (a backup, a shell, a stuck driver), end "
    "that, and repeat the call",
    "read_only": "is read-only, nothing was changed. Make it writable: the rights of file and directory, the mount, or "
    "the server's primary instead of its standby",
    "denied": "refuses us. Check user, password and rights: lsmstate needs to create and to change its tables",
    "full": "has no space left, nothing was changed. Free some on its disk and repeat the call",
    "damaged": "is damaged or is no catalog, nothing was changed. Restore a backup, or name another URL",
    "io": "could not read or write its file. Check the disk, and repeat the call: repeating is safe",
    CONFLICT: "is changed by too many others at once. Repeat the call",
    "other": "refused a statement, nothing was changed",
}

# primary result codes of SQLite
_SQLITE = {3: "denied", 5: "locked", 6: "locked", 8: "read_only", 10: "io", 11: "damaged", 13: "full", 14: DOWN}
_SQLITE |= {23: "denied", 26: "damaged"}

# SQLSTATE of PostgreSQL, whole or its class
_POSTGRES = {"55P03": "locked", "57014": "locked", "25006": "read_only", "42501": "denied", "40001": CONFLICT}
_POSTGRES |= {
    "40P01": CONFLICT,
    "28": "denied",
    "53100": "full",
    "58": "io",
    "53": DOWN,
    "57": DOWN,
    "08": DOWN,
    "XX": "damaged",
}
_POSTGRES |= {"3D": DOWN, "3F": "denied", "08": DOWN, "XX": "damaged", "42P01": "damaged", "42703": "damaged"}


def reason_of(error: DBAPIError, is_sqlite: bool) -> str:
    """One word for what has happened."""
    if is_sqlite:
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code is None:
            return "other"
        return _SQLITE.get(code & 0xFF, "damaged" if "no such" in str(error.orig) else "other")
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # the server did not say: it is not there, or was lost
        return _refused(str(error.orig))
    return _POSTGRES.get(state) or _POSTGRES.get(state[:2], "other")


def told(error: DBAPIError, address: Address) -> CatalogError:
    """The error as the caller gets it."""
    reason = reason_of(error, address.is_sqlite)
    name = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None)
    said = address.scrubbed(str(error.orig)) + (f", {name}" if name else "")
    return CatalogError(f"catalog {address.label}: {_SAYS[reason]}. It said: {said}", reason)


def _refused(text: str) -> str:
    return "denied" if "authentication failed" in text or "no password supplied" in text else DOWN
