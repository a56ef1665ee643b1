"""Candidates: what partitions have finished of an epoch, and which of it counts.

A task that is retried, doubled or killed leaves several candidates of an epoch; each is whole, and as good as another.
Which one counts is for the next barrier to say, or for the line that starts there. Reads only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

from lsmstate.errors import CorruptionError, EpochError
from lsmstate.join.home import Home
from lsmstate.join.lines import Line, newest_line
from lsmstate.manifest import names
from lsmstate.manifest.codec import DOCUMENT_MAX_BYTES, decode


@dataclass(frozen=True, slots=True)
class Candidate:
    """A complete candidate of an epoch in a partition, and what its task left in it."""

    name: str
    meta: dict[str, Any]

    @property
    def run(self) -> int:
        """The run of the query that made it."""
        return int(self.meta["run"])


def candidates_of(
    home: Home, partition: int, epoch: int, line: Line | None = None
) -> tuple[list[Candidate], list[str]]:
    """The complete candidates of an epoch in a partition; and the paths of those that cannot be read.

    Where a line starts from the epoch, only the one that it starts with."""
    line = line or newest_line(home)
    lies_on, chosen = line.at(epoch).number, line.chosen(epoch)
    directory = f"{home.partition(partition)}/{names.MANIFEST_DIR}"
    found, damaged = [], []
    for name in manifests_of(home, partition):
        parsed = names.parse(name)
        if parsed is None or (parsed.epoch, parsed.line) != (epoch, lies_on) or (chosen and name not in chosen):
            continue
        path = f"{directory}/{name}"
        try:
            meta = decode(path, home.fs.read(path, DOCUMENT_MAX_BYTES), name)[1].get("meta")
        except FileNotFoundError:
            continue
        except CorruptionError:
            damaged.append(path)  # torn by a crash, and so never complete; or damaged since
            continue
        if has_all(meta):
            found.append(Candidate(name, meta))
        else:
            damaged.append(path)
    return found, damaged


def has_all(meta: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a task has left what the next barrier needs: its run, and of each side the newest event time, or None,
    and how many rows came."""
    if not isinstance(meta, dict) or type(meta.get("run")) is not int:
        return False
    times, rows = meta.get("max_ts"), meta.get("rows")
    if not isinstance(rows, list) or len(rows) != 2 or any(type(count) is not int for count in rows):
        return False
    return isinstance(times, list) and len(times) == 2 and all(ts is None or type(ts) is int for ts in times)


def complete(home: Home, partitions: int, epoch: int, line: Line | None = None) -> list[Candidate]:
    """One complete candidate of an epoch for each partition. Raises EpochError where there is none.

    Those of the newest run count: a run that repeats an epoch repeats it in all partitions, and should its input differ
    (as it may after asynchronous progress tracking), then what came of it is still of one piece.
    """
    line = line or newest_line(home)
    chosen, missing, damaged = [], [], []
    for partition in range(partitions):
        found, bad = candidates_of(home, partition, epoch, line)
        damaged += bad
        if found:
            chosen.append(max(found, key=lambda candidate: candidate.run))
        else:
            missing.append(partition)
    if not missing:
        return chosen
    told = (
        f"{home.path}: epoch {epoch} (batch {line.batch(epoch)}) is not complete: partitions {missing} have not "
        "finished it. "
    )
    if damaged:
        raise EpochError(told + f"There are damaged manifests: {', '.join(damaged)}; bring back a copy of them")
    if line.chosen(epoch):
        raise EpochError(told + "A line starts from it, and its manifests are gone: bring back a copy of them")
    lost = [gone for partition in missing if (gone := _lost(home, partition, epoch))]
    if lost:
        raise EpochError(
            told
            + f"{'; '.join(lost)}, though the state has earlier epochs: bring back a copy, or take the join back as "
            "a whole (see docs/recovery.md)"
        )
    raise EpochError(
        told + "Was the result cut short downstream, by `limit`, `head`, `take` or `show`, or its tasks joined by "
        "`coalesce`? Then its rows are not in the state: write all of the result, or filter it (and use `repartition` "
        "for fewer files), and start anew with another state= and checkpointLocation"
    )


def _lost(home: Home, partition: int, epoch: int) -> str | None:
    """What is gone of a partition that has nothing of what others have finished before an epoch; None if it has."""
    if manifests_of(home, partition):
        return None
    earlier = (names.parse(name) for other in home.partitions_made() for name in manifests_of(home, other))
    if not any(name is not None and name.epoch < epoch for name in earlier):
        return None
    for directory in (home.partition(partition), f"{home.partition(partition)}/{names.MANIFEST_DIR}"):
        if home.fs.kind(directory) is None:
            return f"There is no directory {directory}"
    return f"There is nothing in {home.partition(partition)}/{names.MANIFEST_DIR}"


def manifests_of(home: Home, partition: int) -> list[str]:
    """The names of a partition's manifests; none if it does not exist."""
    try:
        return sorted(home.fs.list_dir(f"{home.partition(partition)}/{names.MANIFEST_DIR}"))
    except (FileNotFoundError, NotADirectoryError):
        return []
