"""A join whose state is taken back to an epoch: the query that goes on, and what is seen of the state."""

from __future__ import annotations

from lsmstate import read_state
from lsmstate.join.reading import job_of
from lsmstate.join.verify import verify
from tests.support.join_home import JoinHome

LAST = 5  # with three epochs retained: 3 to 5 can be read


def go_on(join: JoinHome, query: str = "query-2") -> JoinHome:
    """Another query on the newest line."""
    return JoinHome(join.path, join.spec, query=query)


def keys(join: JoinHome, epoch: int | None = None) -> set[int]:
    """In which epochs the rows of an epoch came."""
    return {n // 1000 for n in read_state(join.path, epoch=epoch).column(0).to_pylist()}


def problems(join: JoinHome) -> list[str]:
    """What `verify` finds."""
    return [str(problem) for problem in verify(join.home, job_of(join.home), lambda *_: None).problems]
