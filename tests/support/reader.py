"""A process that does with states all that a reader does, and a writer: `python -m tests.support.reader PATH...`.

The last line of stderr tells for each path, as JSON, how each thing ended: `done` or the error. An error that is not
documented ends the process with a traceback.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable

from lsmstate import LsmStateError, StateStore, read_state
from lsmstate.cli import main as command

ADDRESSES_MAX = 8 << 30  # what it may map and allocate: a bomb ends in MemoryError, which is not documented


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES_MAX, ADDRESSES_MAX))
    sys.stderr.write(f"\n{json.dumps([ends(path) for path in sys.argv[1:]])}\n")


def ends(path: str) -> dict[str, str]:
    told = {"scan": ended(lambda: scan(path)), "read_state": ended(lambda: read_state(path).num_rows)}
    for name in ("inspect", "verify", "doctor"):
        told[name] = ended(lambda name=name: command([name, path, "--json"]))  # type: ignore[misc]
    return {**told, "write": ended(lambda: write(path))}


def scan(path: str) -> int:
    with StateStore.open(path, read_only=True) as store:
        rows = sum(batch.num_rows for side in range(len(store.sides)) for batch in store.scan(side))
        for epoch in store.epochs():
            with store.at_epoch(epoch) as view:
                rows += sum(batch.num_rows for batch in view.scan(0))
        store.verify()
        return rows


def write(path: str) -> None:
    with StateStore.open(path) as store:
        store.advance_watermark(5)
        store.snapshot_epoch(max(store.epochs(), default=0) + 1)
        store.compact(major=True)
        store.snapshot_epoch(max(store.epochs(), default=0) + 1)


def ended(act: Callable[[], object]) -> str:
    try:
        return f"done: {act()}"
    except (LsmStateError, OSError) as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
