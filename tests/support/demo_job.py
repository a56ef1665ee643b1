"""Looks at a demonstration as a screen would get them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from iopool import FileSystem
from lsmstate.spark import EpochProgress
from lsmstate.spark.demo import STATE, Look, Phase, Verdict
from lsmstate.spark.demo_feed import Fed

START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def epoch(number: int) -> EpochProgress:
    """An epoch of 100,000 rows, three of which are still kept."""
    kept = min(number, 3)
    return EpochProgress(
        job="ad-join",
        epoch=number,
        batch_id=number - 1,
        partitions=2,
        rows_in=(60_000, 40_000),
        rows_out=30_000,
        late=(0, 0),
        unkeyed=(0, 0),
        state_rows=(60_000 * kept, 40_000 * kept),
        state_bytes=kept << 20,
        files=2 * kept,
        runs=(kept, kept),
        idle=(),
        ahead=(0, 0),
        watermark_us=None if number == 1 else START_US + number * 10_500_000,
        busy_ms=100.0,
        batch_ms=800,
        candidates=(),
    )


def look(phase: Phase, epochs: int = 0, verdict: Verdict | None = None) -> Look:
    """A look at a job after so many epochs, each of two files a side."""
    fed = Fed(2 * epochs, (60_000 * epochs, 40_000 * epochs))
    return Look(phase, 61.0, 40, fed, tuple(epoch(number) for number in range(1, epochs + 1)), verdict)


class FakeJob:
    """Stands in for a DemoJob: goes on by one look whenever somebody waits."""

    verdict = Verdict(rows=600_000, expected=600_000, missing=0, extra=0)
    error: Exception | None = None

    def __init__(self, fs: FileSystem, where: str, seconds: int) -> None:
        path = where
        for name in (*STATE.split("/"), "p-00000", "sst"):
            path = f"{path}/{name}"
            fs.make_dir(path)
        fs.create(f"{path}/1.sst").close()
        self._looks: Sequence[Look] = [
            look("starting"),
            look("joining"),
            *(look("joining", epochs) for epochs in (1, 2, 3, 5, 20)),
            look("checking", 20),
            look("ended", 20, self.verdict),
        ]
        self._at = 0

    def __enter__(self) -> FakeJob:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        """The next look."""
        if self.error is not None:
            raise self.error
        self._at += 1
        return self._at == len(self._looks) - 1

    def look(self) -> Look:
        """Where it is."""
        return self._looks[self._at]
