"""The master of several pipelines: brings every job back that the catalog knows, and keeps their failures apart.

    master = JobMaster("sqlite:///state/catalog.db", {"ad-join": make_ad_join, "orders": make_orders})
    master.restore()          # each goes on at its own epoch
    outcomes = master.wait()  # by name: the last epoch, or what ended it

A job that cannot be started, or fails later, stops nobody else. Any thread may call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from lsmstate.checkpoint.catalog import Catalog
from lsmstate.checkpoint.pipeline import Pipeline
from lsmstate.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: its last epoch, and the error that has ended it, if one did."""

    epoch: int | None
    error: BaseException | None = None


class JobMaster:
    """makers: for each job a function that gives its pipeline, with this catalog."""

    def __init__(self, catalog: str, makers: Mapping[str, Callable[[], Pipeline]]) -> None:
        self._catalog, self._makers = catalog, dict(makers)
        self._running: dict[str, Pipeline] = {}
        self._outcomes: dict[str, Outcome] = {}

    def restore(self) -> dict[str, Outcome]:
        """Starts every job of the catalog at its epoch; gives those that could not be."""
        with Catalog.open(self._catalog) as catalog:
            known = {job.name: job for job in catalog.jobs()}
        for name, job in known.items():
            if name in self._makers:
                self.start(name)
            elif job.kind == "pipeline":
                told = f"job {name!r} stands in the catalog, and nothing says how it is made: give a maker, or drop it"
                self._outcomes[name] = Outcome(job.latest_checkpoint_epoch, CheckpointError(told))
        return {name: outcome for name, outcome in self._outcomes.items() if outcome.error is not None}

    def start(self, name: str) -> None:
        """Starts one job, new or known. What it raises is its outcome."""
        if name not in self._makers:
            raise ValueError(
                f"there is no maker of job {name!r}; there are those of {', '.join(self._makers) or 'none'}"
            )
        if name in self._running and not self._running[name].has_ended:
            raise CheckpointError(f"job {name!r} runs already")
        self._outcomes.pop(name, None)
        try:
            pipeline = self._makers[name]()
            if pipeline.name != name:
                raise ValueError(f"the maker of job {name!r} gives job {pipeline.name!r}")
            pipeline.start()
        except Exception as error:
            self._outcomes[name] = Outcome(None, error)
        else:
            self._running[name] = pipeline

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """What became of the jobs that have ended, or could not be started."""
        for name, pipeline in list(self._running.items()):
            if pipeline.has_ended:
                self._end(name, pipeline.wait)
        return dict(self._outcomes)

    def wait(self) -> dict[str, Outcome]:
        """Waits until all jobs have ended; gives what became of each."""
        for name, pipeline in list(self._running.items()):
            self._end(name, pipeline.wait)
        return dict(self._outcomes)

    def stop(self, *, savepoint: bool = True) -> dict[str, Outcome]:
        """Stops all jobs, each with a last checkpoint unless told."""
        for name, pipeline in list(self._running.items()):
            self._end(name, partial(pipeline.stop, savepoint=savepoint))
        return dict(self._outcomes)

    def _end(self, name: str, end: Callable[[], int]) -> None:
        try:
            self._outcomes[name] = Outcome(end())
        except Exception as error:
            self._outcomes[name] = Outcome(self._running[name].epoch, error)
        del self._running[name]
