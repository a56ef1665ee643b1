"""A job on Spark in a catalog without Spark: does what its tasks do, and tells what the listener would hear."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lsmstate.checkpoint.catalog import Catalog
from lsmstate.checkpoint.manifest.store import ManifestStore
from lsmstate.join.checkpoints import Checkpoints, Heard
from tests.support.join_home import JoinHome, join_spec

KAFKA, FILES = "KafkaV2[Subscribe[ads]]", "FileStreamSource[file:/clicks]"


class Driver:
    """A driver of the job, told of batches as the listener would be."""

    def __init__(self, tmp_path: Path, run: str = "run-1", interval_ms: int = 0, query: str = "query-1") -> None:
        path = tmp_path / "home"
        self.join = JoinHome(path, join_spec(str(path), retain=4), query=query)
        self.url = f"sqlite:///{tmp_path}/catalog.db"
        self.run = run
        self.opened = 0
        self.checkpoints = Checkpoints(self.join.home, self.join.spec, interval_ms, self._open)
        self.store = ManifestStore(self.join.home.fs, f"{path}/checkpoints")

    def _open(self) -> Catalog:
        self.opened += 1
        return Catalog.open(self.url)

    def heard(self, epoch: int) -> Heard:
        base = self.join.run.line.base
        starts = {KAFKA: kafka_offset(epoch - 1), FILES: None if epoch == base + 1 else file_offset(epoch - 1)}
        ends = {KAFKA: kafka_offset(epoch), FILES: file_offset(epoch)}
        return Heard(self.run, epoch, self.join.run.line.number, starts, ends, "FileSink[/out]")

    def batch(self, epoch: int) -> list[int]:
        """An epoch, and what Spark tells when it has ended."""
        self.join.epoch(epoch)
        self.checkpoints.hear(self.heard(epoch))
        return self.checkpoints.catch_up()

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with Catalog.open(self.url) as catalog:
            yield catalog

    def rows(self) -> list[tuple[int, int, str]]:
        with self.catalog() as catalog:
            return [(row.epoch, row.line, row.status) for row in catalog.checkpoints("ads")]

    def epochs(self) -> list[int]:
        return [epoch for epoch, _, status in self.rows() if status == "committed"]


def kafka_offset(epoch: int) -> str:
    return json.dumps({"ads": {"0": epoch * 10}})


def file_offset(epoch: int) -> str:
    return json.dumps({"logOffset": epoch - 1})
