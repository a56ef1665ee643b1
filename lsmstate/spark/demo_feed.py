"""The feeder of the demonstration: a thread that writes parquet files for two streaming sources while a query runs.

A file appears under its name when it is whole, so the sources never see half of one. Threading: what has been fed
may be read from any thread; everything else belongs to the thread that made the feeder.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from iopool import FileSystem
from lsmstate.spark.demo_rows import Arrivals

FILES_A_SECOND = 2  # a side
_DRAFTS = "drafts"


@dataclass(frozen=True, slots=True)
class Fed:
    """What the feeder has written so far. Pairs are (impressions, clicks)."""

    files: int = 0
    rows: tuple[int, int] = (0, 0)


class Feeder:
    """Writes a given number of files for each side: one at once, the others at a steady pace once `pace` is called."""

    def __init__(self, fs: FileSystem, where: str, sides: tuple[str, str], files: int) -> None:
        self.files = files
        self.fed = Fed()
        self.error: Exception | None = None
        self._fs, self._where, self._sides = fs, where, sides
        self._pacing, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo feeder", daemon=True)
        for name in (_DRAFTS, *sides):
            fs.make_dir(f"{where}/{name}")

    @property
    def ended(self) -> bool:
        """Whether no more files will come."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def start(self) -> None:
        """Writes the first file, and then waits for `pace`."""
        self._thread.start()

    def pace(self) -> None:
        """Writes all the others, when each is due. May be called again."""
        self._pacing.set()

    def stop(self) -> None:
        """Ends after the file that is being written."""
        self._stopping.set()
        self._pacing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._feed()
        except Exception as error:
            self.error = error

    def _feed(self) -> None:
        arrivals = Arrivals()
        self._add(arrivals)
        self._pacing.wait()
        begun = time.monotonic()
        for number in range(1, self.files):
            if self._stopping.wait(max(0.0, begun + number / FILES_A_SECOND - time.monotonic())):
                return
            self._add(arrivals)

    def _add(self, arrivals: Arrivals) -> None:
        batches, number = arrivals.file(), self.fed.files + 1
        for side, batch in zip(self._sides, batches, strict=True):
            self._write(f"{side}/{number:06d}.parquet", batch)
        before = self.fed.rows
        self.fed = Fed(number, (before[0] + batches[0].num_rows, before[1] + batches[1].num_rows))

    def _write(self, name: str, batch: pa.RecordBatch) -> None:
        encoded = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([batch]), encoded)
        draft = f"{self._where}/{_DRAFTS}/draft"
        file = self._fs.create(draft)
        try:
            file.write([memoryview(encoded.getvalue())])
        finally:
            file.close()
        self._fs.link(draft, f"{self._where}/{name}")
        self._fs.unlink(draft)
