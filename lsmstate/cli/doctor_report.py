"""What `lsmstate doctor` finds, as a JSON-able report, and what it does when it is told to go back.

Of a state the engine goes back (engine/recovery.py); of a join a new line starts from the epoch (join/restore.py), in
all partitions at once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from iopool import FileSystem
from lsmstate.cli import verify, verify_join
from lsmstate.engine.identity import Identity, read_identity
from lsmstate.engine.recovery import Loss, loss_after, published, recover
from lsmstate.errors import CorruptionError, LsmStateError, NotAStateError
from lsmstate.join.history import history_of
from lsmstate.join.home import Home, home_of, is_home
from lsmstate.join.reading import job_of
from lsmstate.join.restore import restore
from lsmstate.manifest.log import ManifestLog


def describe(fs: FileSystem, path: str) -> dict[str, Any]:
    """The report: what `verify` says, and what going back to each whole epoch would lose, the newest first."""
    join = is_home(fs, path)
    checked = verify_join.check(fs, path) if join else verify.check(fs, path)
    recoveries = list(_of_join(fs, path, checked) if join else _of_state(fs, path, checked))
    return {
        "schema": "lsmstate.doctor/1",
        "path": path,
        "kind": "join" if join else "state",
        "ok": checked["ok"],
        "problems": checked["problems"],
        "epochs": checked["epochs"],
        "recoveries": recoveries[::-1],
        "recovered": None,
        "next": _next(path, join=join),
        "verify": checked,
    }


def recovered(fs: FileSystem, path: str, epoch: int) -> int:
    """Goes back to an epoch; gives the line that the state is on now."""
    if is_home(fs, path):
        return restore(Home(fs, path), epoch, f"lsmstate doctor --recover {epoch}").number
    home = home_of(fs, path)
    if home is not None:
        raise LsmStateError(f"{path}: is one partition of a join; all go back together: lsmstate doctor {home}")
    return recover(fs, path, _identity(fs, path), epoch).version.line


def _next(path: str, *, join: bool) -> list[str]:
    if not join:
        return ["open the state and replay what came after that epoch", f"lsmstate verify {shlex.quote(path)}"]
    return [
        "start the query with a new checkpointLocation: the old one belongs to what is left behind",
        "its sources start from the offsets of that epoch: lsmstate checkpoints JOB tells them",
        f"lsmstate verify {shlex.quote(path)}",
    ]


def _of_state(fs: FileSystem, path: str, checked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        identity = _identity(fs, path)
    except (CorruptionError, NotAStateError):
        return  # without STATE there is no way back: verify says what to do
    harmed = {epoch for problem in checked["problems"] for epoch in problem["epochs"]}
    for manifest in published(fs, path, identity):
        if manifest.version.epoch not in harmed:
            loss = loss_after(fs, path, identity, manifest)
            rows = dict(zip((side.name for side in identity.sides), loss.rows, strict=True))
            yield _told(manifest.version.epoch, [(".", loss)], rows)


def _of_join(fs: FileSystem, path: str, checked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    home = Home(fs, path)
    try:
        job = job_of(home)
        history = history_of(home, job.partitions)
    except (CorruptionError, NotAStateError):
        return
    whole = [epoch for epoch in checked["whole_epochs"] if epoch in history.readable]
    for epoch in whole:
        losses = []
        for partition, name in enumerate(history.candidates[epoch]):
            where = home.partition(partition)
            identity = _identity(fs, where)
            manifest = ManifestLog(fs, where, identity.store_id, len(identity.sides)).read(name)
            losses.append((where.rpartition("/")[2], loss_after(fs, where, identity, manifest)))
        rows = {side.name: sum(loss.rows[number] for _, loss in losses) for number, side in enumerate(job.sides)}
        yield _told(epoch, losses, rows)


def _told(epoch: int, losses: list[tuple[str, Loss]], rows: dict[str, int]) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "epochs": sorted({later for _, loss in losses for later in loss.epochs}),
        "rows": rows,
        "bytes": sum(loss.size_bytes for _, loss in losses),
        "unreadable": [
            f"{where}/{name}".removeprefix("./") for where, loss in losses for name in sorted(loss.unreadable)
        ],
        "log_bytes": sum(loss.log_bytes for _, loss in losses),
    }


def _identity(fs: FileSystem, path: str) -> Identity:
    identity = read_identity(fs, path)
    if identity is None:
        raise NotAStateError(f"{path}: there is no state; name the directory of one")
    return identity
