"""A long life of one state in a process of its own: `python -m tests.support.soak DIR SECONDS`.

A writer appends transfers (a row on each side), removes some, advances the watermark, publishes, restores and
compacts; it closes its handle and opens another every so many epochs. Readers in threads read snapshots and retained
epochs, in this handle and in others; every view must be one moment. Meanwhile resident memory, descriptors, threads
and mapped files are measured at the end of each handle, when all of it should be gone. After the first third, which
warms the process up, none may grow: the least of the last third is compared with the most of the second. Prints the
figures as a line of JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from time import monotonic
from typing import NamedTuple

import pyarrow as pa

from tests.support.script_store import descriptors, mapped_files
from tests.support.transfers import Stress

HANDLE_SECONDS = 1.0  # the life of one handle
SLACK_BYTES = 24 << 20  # what allocators take and give back
LEAST = 9  # measurements, so that each third has some


class Measured(NamedTuple):
    """A process between two handles."""

    resident_bytes: int
    descriptors: int
    threads: int
    mapped: int


def measure() -> Measured:
    """What the process holds once garbage is gone."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return Measured(pages * 4096, descriptors(), threading.active_count(), mapped_files())


def grown(measured: list[Measured]) -> list[str]:
    """What has grown between the second and the last third."""
    third = len(measured) // 3
    before, after = measured[third : 2 * third], measured[2 * third :]
    found = []
    for name, slack in zip(Measured._fields, (SLACK_BYTES, 0, 0, 0), strict=True):
        most, least = max(getattr(m, name) for m in before), min(getattr(m, name) for m in after)
        if least > most + slack:
            found.append(f"{name}: at most {most:,} in the second third, at least {least:,} in the last")
    return found


def main(path: str, seconds: float) -> None:
    end, measured, reads, epochs = monotonic() + seconds, list[Measured](), 0, 0
    while monotonic() < end or len(measured) < LEAST:
        stress = Stress(path, HANDLE_SECONDS)
        begun = stress.epochs
        stress.run()
        if stress.errors:
            raise stress.errors[0]
        reads, epochs = reads + stress.reads, epochs + stress.epochs - begun
        del stress
        measured.append(measure())
    assert not (found := grown(measured)), "; ".join(found)
    assert measured[-1].mapped == 0, f"{measured[-1].mapped} files are still mapped"
    figures = {"reads": reads, "epochs": epochs, "handles": len(measured), **measured[-1]._asdict()}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
