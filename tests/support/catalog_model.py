"""What a catalog must say after any sequence of calls, in a few dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lsmstate.checkpoint.catalog import CheckpointRow

Offsets = Mapping[str, Mapping[str, str]]


@dataclass
class ModelJob:
    """Where a job stands."""

    epoch: int = 0
    at: int | None = None
    line: int = 1
    rows: dict[int, CheckpointRow] = field(default_factory=dict)
    offsets: dict[int, Offsets] = field(default_factory=dict)


class ModelCatalog:
    """Each call gives the name of the error that the catalog must raise, or None."""

    def __init__(self) -> None:
        self.jobs: dict[str, ModelJob] = {}
        self.incarnations: dict[str, int] = {}
        self.ids: dict[str, int] = {}

    def register(self, name: str) -> str | None:
        self.jobs.setdefault(name, ModelJob())
        self.incarnations.setdefault(name, 0)
        self.ids.setdefault(name, 0)
        return None

    def drop(self, name: str) -> str | None:
        if self.jobs.pop(name, None) is not None:
            self.incarnations[name] += 1
        return None

    def take(self, name: str) -> str | None:
        if name not in self.jobs:
            return "CatalogError"
        self.incarnations[name] += 1
        return None

    def next_checkpoint_id(self, name: str, incarnation: int) -> str | None:
        if (wrong := self._fenced(name, incarnation)) is None:
            self.ids[name] += 1
        return wrong

    def commit(self, name: str, incarnation: int, row: CheckpointRow, offsets: Offsets) -> str | None:
        if (wrong := self._fenced(name, incarnation)) is not None:
            return wrong
        job = self.jobs[name]
        if row.checkpoint_id in job.rows:
            same = (job.rows[row.checkpoint_id], job.offsets[row.checkpoint_id]) == (row, offsets)
            return None if same else "EpochError"
        after = row.epoch > job.epoch and (job.at or 0) < row.checkpoint_id <= self.ids[name]
        if row.line != job.line or not after:
            return "EpochError"
        job.rows[row.checkpoint_id], job.offsets[row.checkpoint_id] = row, offsets
        job.epoch, job.at = row.epoch, row.checkpoint_id
        return None

    def rewind(self, name: str, incarnation: int, epoch: int, line: int) -> str | None:
        if (wrong := self._fenced(name, incarnation)) is not None:
            return wrong
        job = self.jobs[name]
        if (job.epoch, job.line) == (epoch, line):
            return None
        known = {row.epoch: number for number, row in job.rows.items() if row.status == "committed"}
        if line <= job.line or (epoch and epoch not in known):
            return "EpochError"
        for number, row in job.rows.items():
            if row.epoch > epoch:
                job.rows[number] = replace(row, status="left_behind")
        job.epoch, job.at, job.line = epoch, known.get(epoch), line
        return None

    def forget(self, name: str, incarnation: int, ids: list[int]) -> str | None:
        if (wrong := self._fenced(name, incarnation)) is not None:
            return wrong
        job = self.jobs[name]
        if job.at in ids:
            return "ValueError"
        for number in ids:
            job.rows.pop(number, None)
            job.offsets.pop(number, None)
        return None

    def _fenced(self, name: str, incarnation: int) -> str | None:
        if name not in self.incarnations:
            return "CatalogError"
        return None if name in self.jobs and self.incarnations[name] == incarnation else "FencedError"
