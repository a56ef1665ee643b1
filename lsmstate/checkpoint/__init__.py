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
    from lsmstate.checkpoint.coordinator import CheckpointCoordinator as CheckpointCoordinator
    from lsmstate.checkpoint.database_sink import DatabaseSink as DatabaseSink
    from lsmstate.checkpoint.file_sink import FileSink as FileSink
    from lsmstate.checkpoint.logged_source import LoggedSource as LoggedSource
    from lsmstate.checkpoint.lookup import Lookup as Lookup
    from lsmstate.checkpoint.manifest import CheckpointManifest as CheckpointManifest
    from lsmstate.checkpoint.master import JobMaster as JobMaster
    from lsmstate.checkpoint.operator import Operator as Operator
    from lsmstate.checkpoint.parquet_source import ParquetSource as ParquetSource
    from lsmstate.checkpoint.pipeline import Pipeline as Pipeline
    from lsmstate.checkpoint.reference import ReferenceTable as ReferenceTable
    from lsmstate.checkpoint.table_source import TableSource as TableSource

_HOMES = {
    "Catalog": "catalog",
    "CheckpointCoordinator": "coordinator",
    "CheckpointManifest": "manifest",
    "DatabaseSink": "database_sink",
    "FileSink": "file_sink",
    "JobMaster": "master",
    "LoggedSource": "logged_source",
    "Lookup": "lookup",
    "Operator": "operator",
    "ParquetSource": "parquet_source",
    "Pipeline": "pipeline",
    "ReferenceTable": "reference",
    "TableSource": "table_source",
}

__all__ = ["CheckpointBarrier", "OperatorContext", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
