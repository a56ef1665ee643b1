"""What a state does on a disk that is full or read-only: `python -m tests.support.odd_disk WHAT MOUNT`.

The last line tells, as JSON, what was read and how each attempt to write ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from iopool import LocalFileSystem
from lsmstate import LsmStateError, StateStore
from lsmstate.cli import main as command
from tests.support.small_store import SIDES, build, left_rows, open_store, read_all


def main() -> None:
    what, path = sys.argv[1:]
    told = {"full": full, "read_only": read_only}[what](path)
    sys.stdout.write(f"\n{json.dumps(told)}\n")


def full(mount: str) -> dict[str, object]:
    """Writes until the disk is full; then older epochs are read, and a smaller one is written where room is again."""
    fs, path = LocalFileSystem(), f"{mount}/state"
    build(fs, path)
    with open(f"{mount}/ballast", "wb") as ballast:
        ballast.write(bytes(1 << 20))
    before = read_all(fs, path)
    with open_store(fs, path) as store:
        last = store.epochs()[-1]
        store.append(0, left_rows(1000, 200_000))
        failed = ended(lambda: store.snapshot_epoch(last + 1))
        same = read_all(fs, path) == before
        fs.unlink(f"{mount}/ballast")
    with open_store(fs, path) as store:
        store.append(0, left_rows(1000, 10))
        store.snapshot_epoch(last + 1)
        epochs = store.epochs()
    return {"failed": failed, "same": same, "last": epochs[-1] - last}


def read_only(mount: str) -> dict[str, object]:
    """Reads all that there is, and tries to write."""
    fs, path = LocalFileSystem(), f"{mount}/state"
    build(fs, path)
    before = read_all(fs, path)
    subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
    codes = {name: command([name, path, "--json"]) for name in ("inspect", "verify", "doctor")}
    return {
        "same": read_all(fs, path) == before,
        "codes": codes,
        "write": ended(lambda: write(path)),
        "create": ended(lambda: StateStore.open(f"{mount}/new", SIDES)),
        "recover": command(["doctor", path, "--recover", "3", "--yes"]),
    }


def write(path: str) -> None:
    with StateStore.open(path) as store:
        store.append(0, left_rows(500, 3))
        store.snapshot_epoch(9)


def ended(act: Callable[[], object]) -> str:
    try:
        act()
    except (LsmStateError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return "done"


if __name__ == "__main__":
    main()
