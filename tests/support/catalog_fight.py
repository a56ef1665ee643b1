"""A driver of a job in a process of its own, told what to do through a pipe: for fights over one job.

    python -m tests.support.catalog_fight URL JOB WHO

Each line of its input is a step, answered by one line of JSON. Offsets that it commits tell who committed which epoch
in which incarnation, in two sources: a mixture of two commits would show.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

from lsmstate import EpochError, FencedError
from lsmstate.checkpoint.catalog import Catalog, CheckpointRow, JobRow


class Driver:
    """What one process does."""

    def __init__(self, catalog: Catalog, job: str, who: str) -> None:
        self._catalog, self._job, self._who = catalog, job, who
        self._mine = self._epoch = 0
        self._ids: list[int] = []

    def take(self) -> dict[str, Any]:
        """Takes the job, and an id for the epoch after the latest."""
        told = self._catalog.job(self._job)
        assert told is not None
        self._epoch = told.latest_checkpoint_epoch + 1
        self._mine = self._catalog.take(self._job)
        self._ids = []
        return {"incarnation": self._mine}

    def commit(self) -> dict[str, Any]:
        """Tries to commit that epoch."""
        try:
            self._ids.append(self._catalog.next_checkpoint_id(self._job, self._mine))
            row = CheckpointRow(self._ids[0], self._epoch, note=f"{self._who} {self._mine}")
            self._catalog.commit_job_checkpoint(self._job, self._mine, row, self._offsets())
        except (FencedError, EpochError) as error:
            return {"ended": type(error).__name__, "ids": self._ids, "incarnation": self._mine, "epoch": self._epoch}
        return {"ended": "won", "ids": self._ids, "incarnation": self._mine, "epoch": self._epoch}

    def both(self) -> dict[str, Any]:
        """Takes the job and commits at once."""
        self.take()
        return self.commit()

    def go_on(self) -> None:
        """Commits epoch after epoch, told as they are durable, till it is killed."""
        while True:
            print(json.dumps(self.both()), flush=True)

    def _offsets(self) -> dict[str, dict[str, str]]:
        told = {"who": self._who, "epoch": str(self._epoch), "incarnation": str(self._mine)}
        return {"left": told, "right": told}


def require_unmixed(job: JobRow) -> None:
    """Fails unless epoch and offsets of a job's row were committed together."""
    if job.latest_checkpoint_epoch == 0:
        assert job.source_checkpoints == {}
        return
    left, right = job.source_checkpoints["left"], job.source_checkpoints["right"]
    assert left == right
    assert left["epoch"] == str(job.latest_checkpoint_epoch)
    assert int(left["incarnation"]) <= job.incarnation


class DriverProcess:
    """A driver in another process."""

    def __init__(self, url: str, job: str, who: str) -> None:
        command = [sys.executable, "-m", "tests.support.catalog_fight", url, job, who]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def tell(self, step: str) -> None:
        """Starts a step."""
        assert self._process.stdin is not None
        self._process.stdin.write(step + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Waits for the end of a step."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the driver has died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> list[dict[str, Any]]:
        """Ends it with -9; what it has answered and nobody has read yet."""
        if self._process.returncode is not None:
            return []
        self._process.kill()
        assert self._process.stdout is not None
        left = [json.loads(line) for line in self._process.stdout.read().splitlines(keepends=True) if line[-1:] == "\n"]
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return left


def main() -> None:
    url, job, who = sys.argv[1:]
    with Catalog.open(url) as catalog:
        driver = Driver(catalog, job, who)
        for line in sys.stdin:
            step = line.strip()
            if step == "go on":
                driver.go_on()
            print(json.dumps({"take": driver.take, "commit": driver.commit, "both": driver.both}[step]()), flush=True)


if __name__ == "__main__":
    main()
