"""Memory that lacks for mapping a file: as any other error of the disk. See test_errno.py for the rules."""

from __future__ import annotations

import errno
import os

from tests.conftest import Figures
from tests.engine.test_errno import Fault, clean, fail_everywhere, watchdog
from tests.support.crash_workload import Epochs
from tests.support.simfs import SimFileSystem

__all__ = ["clean", "watchdog"]  # fixtures


class MapFault(Fault):
    """Fails one mapping of all that are done; `index` counts mappings only."""

    def __call__(self, op: str, path: str, at: int) -> None:
        if op == "map":
            if self.index == 0:
                self.hit = (op, path)
                self.index = -1
                raise OSError(self.code, os.strerror(self.code), path)
            self.index -= 1


def test_mapping_that_fails_for_want_of_memory_loses_nothing(clean: list[list[Epochs]], figures: Figures) -> None:
    def mount(fault: Fault) -> SimFileSystem:
        return SimFileSystem(fault=fault)

    fail_everywhere(mount, errno.ENOMEM, clean, figures, kind=MapFault, least=5)
