"""The state engine: memtable, flush, views, epochs, recovery, compaction and garbage, behind `StateStore`."""

from lsmstate.engine.metrics import openmetrics
from lsmstate.engine.store import StateStore
from lsmstate.engine.view import View

__all__ = ["StateStore", "View", "openmetrics"]
