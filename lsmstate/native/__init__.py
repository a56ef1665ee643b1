"""The inner loops of the engine, compiled from C where there was a compiler when lsmstate was installed.

`kernel` is None where there was none: then numpy does the same, more slowly and with the same results (tests compare
them). LSMSTATE_NATIVE=0 in the environment turns it off, for such a comparison. Threading: any thread may call it; it
releases the GIL.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType


def _load() -> ModuleType | None:
    if os.environ.get("LSMSTATE_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("lsmstate.native._kernel")
    except ImportError:
        return None


kernel = _load()
