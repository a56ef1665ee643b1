"""`lsmstate verify` of a join's state: all partitions and what holds them together; and what to do about damage."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from iopool import FileSystem
from lsmstate.cli.verdict import Counting, report_of
from lsmstate.engine.identity import read_identity
from lsmstate.engine.verify import Problem
from lsmstate.errors import CorruptionError, LsmStateError
from lsmstate.join.barrier import epochs_begun, read_barrier
from lsmstate.join.home import JOB, Home
from lsmstate.join.kinds import Kind
from lsmstate.join.shape import state_sides
from lsmstate.join.spec import SIDES, Job
from lsmstate.join.verify import Verdict, verify
from lsmstate.schema import Side

_NEVER_CHANGES = (
    "No file changes once it is written: stop the query, and copy the files named above from any backup of this state."
)


def check(fs: FileSystem, path: str) -> dict[str, Any]:
    """The report of a verification. Raises FormatVersionError or OSError where none is possible."""
    home = Home(fs, path)
    lost: list[Problem] = []
    job: Job | None = None
    try:
        told = home.job()
        if told is None:
            lost = [Problem(f"{path}/{JOB}", "the file is missing", ())]
        else:
            job = Job.parse(f"{path}/{JOB}", told)
    except CorruptionError as error:
        lost = [Problem(error.path, str(error), ())]
    known = job or _guess(home)
    verdict = Verdict([], [], 0, None, None)
    if known is not None:
        with Counting("partitions") as counting:
            verdict = verify(home, known, lambda at, done, of: counting.show(at + done / of, known.partitions))
    problems = [*lost, *verdict.problems]
    harmed = {epoch for problem in problems for epoch in problem.epochs}
    whole = [epoch for epoch in verdict.epochs if epoch not in harmed]
    advice = _advice(path, verdict, [] if lost else whole, problems) if problems else []
    report = report_of(path, not lost, verdict.epochs, whole, verdict.files, problems, advice)
    return {
        **report,
        "job": job.name if job else None,
        "partitions": known.partitions if known else None,
        "under_way": verdict.under_way,
        "under_way_batch": verdict.batch,
    }


def _guess(home: Home) -> Job | None:
    """What a lost JOB must have said, as far as barriers and partitions tell; None if they do not."""
    partitions = 0
    for epoch in _begun(home):
        try:
            barrier = read_barrier(home, epoch)
        except LsmStateError:
            continue
        partitions = max(partitions, len(barrier.parents) if barrier else 0)
    made = home.partitions_made()
    for partition in made:
        try:
            identity = read_identity(home.fs, home.partition(partition))
        except (LsmStateError, OSError):
            continue
        kind = None if identity is None else _kind(identity.sides)
        if identity is not None and kind is not None:
            return Job("", partitions or made[-1] + 1, kind, (identity.sides[0], identity.sides[1]))
    return None


def _kind(sides: Sequence[Side]) -> Kind | None:
    """A kind of join that has these sides in its state; None if no join has."""
    for how in ("inner", "left", "right", "full"):
        kind = Kind(how=how)
        expected = state_sides((sides[0], sides[1]), kind) if len(sides) >= len(SIDES) else ()
        if [side.describe() for side in expected] == [side.describe() for side in sides]:
            return kind
    return None


def _begun(home: Home) -> list[int]:
    try:
        return epochs_begun(home)
    except FileNotFoundError:
        return []


def _advice(path: str, verdict: Verdict, whole: Sequence[int], problems: Sequence[Problem]) -> list[str]:
    if verdict.torn is not None and all(problem.epochs == (verdict.torn,) for problem in problems):
        batch = verdict.batch
        return [
            f"Epoch {verdict.torn} is not complete. Start the query: if Spark has not finished batch {batch}, it does "
            "it again, and all is well.",
            f"If Spark has finished batch {batch}, the query stops and says so: then copy the manifests from a backup.",
        ]
    advice = [_NEVER_CHANGES]
    newest = verdict.epochs[-1] if verdict.epochs else 0
    if whole and whole[-1] == newest and all(problem.epochs and max(problem.epochs) < newest for problem in problems):
        advice.append(
            f"The newest epoch ({newest}) is not harmed: the query can go on. Do not read the harmed epochs; they go "
            "away as they are retired."
        )
        return advice
    advice.append(
        "Without good copies the query cannot go on. Bring back the state and the checkpointLocation, both from the "
        "same backup; or start anew with another state= and another checkpointLocation."
    )
    if whole:
        told = f"lsmstate.read_state({path!r}, epoch={whole[-1]}, side='left')"
        advice.append(f"The rows of epoch {whole[-1]}, the newest that is whole, can still be read: {told}.")
        advice.append(
            f"If a catalog knows a checkpoint of epoch {whole[-1]}, the job can go back to it: "
            f"lsmstate restore JOB --epoch {whole[-1]}; without one: lsmstate doctor {shlex.quote(path)} "
            f"--recover {whole[-1]}."
        )
    return advice
