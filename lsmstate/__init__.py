"""lsmstate: state for streaming joins. An LSM-tree engine with MVCC, epochs and time travel.

Names are imported when they are first asked for: so the command line can be interrupted quietly before it has begun,
and a process that needs one part does not wait for the others. Threading: safe, as imports are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lsmstate.engine import StateStore, View, openmetrics
    from lsmstate.errors import (
        BackpressureTimeout,
        CatalogError,
        CheckpointError,
        CorruptionError,
        EpochError,
        FencedError,
        FormatVersionError,
        LsmStateError,
        NotAStateError,
        SchemaError,
        SnapshotExpired,
        SqlError,
        StoreClosedError,
        StorePoisonedError,
        TooManyFailures,
    )
    from lsmstate.join import read_state, why
    from lsmstate.options import Options
    from lsmstate.schema import Side

__version__ = "0.1.0.dev0"

__all__ = [
    "BackpressureTimeout",
    "CatalogError",
    "CheckpointError",
    "CorruptionError",
    "EpochError",
    "FencedError",
    "FormatVersionError",
    "LsmStateError",
    "NotAStateError",
    "Options",
    "SchemaError",
    "Side",
    "SnapshotExpired",
    "SqlError",
    "StateStore",
    "StoreClosedError",
    "StorePoisonedError",
    "TooManyFailures",
    "View",
    "__version__",
    "openmetrics",
    "read_state",
    "why",
]

_PLACES = {
    "Options": "options",
    "Side": "schema",
    "StateStore": "engine",
    "View": "engine",
    "openmetrics": "engine",
    "read_state": "join",
    "why": "join",
}
_PARTS = ("engine", "errors", "join", "options", "schema")


def __getattr__(name: str) -> object:
    """A public name, or one of the packages that they are in."""
    if name in _PARTS:
        return import_module(f"lsmstate.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'lsmstate' has no attribute {name!r}")
    value: object = getattr(import_module(f"lsmstate.{_PLACES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PARTS})
