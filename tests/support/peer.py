"""Another real process on a real state: `python -m tests.support.peer PATH`, told what to do line by line.

A line is `write FIRST LAST` (an epoch each, which retires the rows of those before), `restore EPOCH`, `snapshot`,
or `read`; the answer is a line of JSON. The process ends with its input.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from lsmstate import Options, StateStore, View
from tests.support.states import batch, rows_of, sides

RETENTION_US = 100
KINDS = sides(retention=RETENTION_US)


def write_epochs(store: StateStore, epochs: range) -> None:
    """Epochs that leave nothing of each other: each one's watermark retires the rows of those before."""
    for number in epochs:
        store.append(0, batch((number, number * 1000, "x")))
        store.advance_watermark(number * 1000)
        store.snapshot_epoch(number)


class Peer:
    """The process as the test sees it. Requires: it is used in a `with`."""

    def __init__(self, path: str) -> None:
        command = [sys.executable, "-m", "tests.support.peer", path]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, line: str) -> Any:
        """Has a line done; gives the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the peer died of {line!r}"
        return json.loads(answer)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def main(path: str) -> None:
    view: View | None = None
    with StateStore.open(path, KINDS, Options(retain=2)) as store:
        for line in sys.stdin:
            what, *numbers = line.split()
            answer: Any = "done"
            if what == "write":
                write_epochs(store, range(int(numbers[0]), int(numbers[1]) + 1))
            elif what == "restore":
                store.restore(int(numbers[0]))
            elif what == "snapshot":
                view = store.snapshot()
            elif what == "read":
                assert view is not None
                answer = rows_of(view.scan(0))
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
