"""The state engine: memtable, flush, views, epochs, recovery and garbage, behind `StateStore`."""

from lsmstate.engine.store import StateStore
from lsmstate.engine.view import View

__all__ = ["StateStore", "View"]
