"""Checkpoints: consistent snapshots of operators, committed by epoch.

Names are imported when they are first asked for: operators need the barrier alone, and a Spark worker should not pay
for the catalog's database library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lsmstate.checkpoint.barrier import CheckpointBarrier
from lsmstate.checkpoint.context import OperatorContext

if TYPE_CHECKING:
    from lsmstate.checkpoint.catalog import Catalog as Catalog
    from lsmstate.checkpoint.connect.database_sink import DatabaseSink as DatabaseSink
    from lsmstate.checkpoint.connect.file_sink import FileSink as FileSink
    from lsmstate.checkpoint.connect.logged_source import LoggedSource as LoggedSource
    from lsmstate.checkpoint.connect.parquet_source import ParquetSource as ParquetSource
    from lsmstate.checkpoint.connect.table_source import TableSource as TableSource
    from lsmstate.checkpoint.coordinator.coordinator import CheckpointCoordinator as CheckpointCoordinator
    from lsmstate.checkpoint.manifest.manifest import CheckpointManifest as CheckpointManifest
    from lsmstate.checkpoint.master import JobMaster as JobMaster
    from lsmstate.checkpoint.operator import Operator as Operator
    from lsmstate.checkpoint.pipeline import Pipeline as Pipeline
    from lsmstate.checkpoint.tables.lookup import Lookup as Lookup
    from lsmstate.checkpoint.tables.reference import ReferenceTable as ReferenceTable

_HOMES = {
    "Catalog": "catalog",
    "CheckpointCoordinator": "coordinator.coordinator",
    "CheckpointManifest": "manifest.manifest",
    "DatabaseSink": "connect.database_sink",
    "FileSink": "connect.file_sink",
    "JobMaster": "master",
    "LoggedSource": "connect.logged_source",
    "Lookup": "tables.lookup",
    "Operator": "operator",
    "ParquetSource": "connect.parquet_source",
    "Pipeline": "pipeline",
    "ReferenceTable": "tables.reference",
    "TableSource": "connect.table_source",
}

__all__ = ["CheckpointBarrier", "OperatorContext", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
