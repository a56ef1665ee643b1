"""lsmstate: state for streaming joins. An LSM-tree engine with MVCC, epochs and time travel."""

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
