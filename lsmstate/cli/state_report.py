"""All that a state's manifests and directories say, as a JSON-able report: what `lsmstate inspect` shows.

Reads manifests and lists directories; opens no SSTable, takes no pin and changes nothing. A writer may go on
meanwhile: if it retires an epoch under the reader, the reader starts again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from iopool import FileSystem
from lsmstate.cli.values import plain_json
from lsmstate.engine.identity import Identity, read_identity
from lsmstate.engine.merge_note import noted
from lsmstate.engine.shape import next_merge
from lsmstate.errors import CorruptionError, LsmStateError, NotAStateError, SnapshotExpired
from lsmstate.keys import bucket_end, bucket_start
from lsmstate.manifest import names
from lsmstate.manifest.log import Head, Manifest, ManifestLog
from lsmstate.manifest.version import Version
from lsmstate.refs import FileRef, RunRef
from lsmstate.schema import Side

_TRIES = 5


def describe(fs: FileSystem, path: str) -> dict[str, Any]:
    """The report of a state. Raises what reading its identity and its newest manifest raises."""
    identity = state_identity(fs, path)
    log = ManifestLog(fs, path, identity.store_id, len(identity.sides))
    for _ in range(_TRIES):
        head = log.head()
        manifests, errors = read_retained(log, head)
        if not any(isinstance(error, SnapshotExpired) for error in errors.values()):
            break
    version = head.version
    _check_sides(log, identity, version)
    return {
        "schema": "lsmstate.inspect/1",
        "path": path,
        "id": identity.store_id,
        "sides": [
            describe_side(number, side, _runs_of(version, number), version.watermark)
            for number, side in enumerate(identity.sides)
        ],
        "head": {
            "epoch": version.epoch,
            "publication": head.number,
            "line": version.line,
            "manifest": head.manifest.name if head.manifest else None,
            "next_id": version.next_id,
            "meta": plain_json(dict(version.meta)),
        },
        "watermark_us": version.watermark,
        "rows": sum(run.rows for ref in version.files.values() for run in ref.live),
        "file_bytes": sum(ref.size_bytes for ref in version.files.values()),
        "compaction": _compaction(fs, path, identity.sides, version),
        "epochs": _epochs(manifests, errors),
        "buckets": _buckets(identity.sides, version),
        "files": [_file(ref, manifests) for ref in version.files.values()],
        "tombstones": [
            {"side": t.side, "start_us": t.start_ts, "end_us": t.end_ts, "id": t.id} for t in version.tombstones
        ],
        "pins": _pins(fs, path),
        **_beside(fs, path, log, head, manifests),
    }


def state_identity(fs: FileSystem, path: str) -> Identity:
    """The identity of a state; NotAStateError where there is none."""
    kind = fs.kind(path)
    if kind is None:
        raise NotAStateError(f"{path}: there is nothing here; name the directory of a state")
    if kind != "dir":
        raise NotAStateError(f"{path}: is not a directory; name the directory of a state")
    if names.STATE not in fs.list_dir(path):
        raise NotAStateError(f"{path}: is not a state, for it has no {names.STATE} file; name the directory of a state")
    identity = read_identity(fs, path)
    assert identity is not None
    return identity


def read_retained(log: ManifestLog, head: Head) -> tuple[list[Manifest], dict[int, Exception]]:
    """The manifests of all epochs that can be opened, oldest first; and why others cannot be read, by epoch."""
    manifests: list[Manifest] = []
    errors: dict[int, Exception] = {}
    for past in head.version.history:
        try:
            manifests.append(log.read(past.manifest))
        except (LsmStateError, OSError) as error:
            errors[past.epoch] = error
    if head.manifest is not None:
        manifests.append(head.manifest)
    return manifests, errors


def _check_sides(log: ManifestLog, identity: Identity, version: Version) -> None:
    """A manifest from anywhere may name sides that the state does not have."""
    for number in [run.side for ref in version.files.values() for run in ref.live]:
        if not 0 <= number < len(identity.sides):
            raise CorruptionError(log.directory, 0, f"runs of {len(identity.sides)} sides", f"side {number}")


def _epochs(manifests: list[Manifest], errors: dict[int, Exception]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    last: Version | None = None
    for manifest in manifests:
        version = manifest.version
        files = version.files
        known = None if last is None or version.epoch - 1 in errors else last.files
        found[version.epoch] = {
            "epoch": version.epoch,
            "line": version.line,
            "manifest": manifest.name,
            "files": len(files),
            "rows": sum(run.rows for ref in files.values() for run in ref.live),
            "bytes": sum(ref.size_bytes for ref in files.values()),
            "watermark_us": version.watermark,
            "added_files": None if known is None else len(files.keys() - known.keys()),
            "removed_files": None if known is None else len(known.keys() - files.keys()),
            "error": None,
        }
        last = version
    blank = dict.fromkeys(next(iter(found.values()), {}))
    for epoch, error in errors.items():
        found[epoch] = {**blank, "epoch": epoch, "error": str(error)}
    return [found[epoch] for epoch in sorted(found)]


def _compaction(fs: FileSystem, path: str, sides: tuple[Side, ...], version: Version) -> dict[str, Any]:
    """How many runs a probe looks into, how much of the files is read, and what waits."""
    found = next_merge(version, sides)
    stored = sum(run.rows for ref in version.files.values() for run in ref.runs)
    read = sum(run.rows for run in version.parts())
    return {
        "most_runs": max((len(_runs_of(version, side)) for side in range(len(sides))), default=0),
        "stored_rows": stored,
        "space_amplification": round(stored / read, 3) if read else 1.0,
        "next": None if found is None else found[0],
        "debt_rows": 0 if found is None else found[1],
        "notes": len(noted(fs, path)),
    }


def _runs_of(version: Version, side: int) -> list[RunRef]:
    return [run for ref in version.files.values() for run in ref.live if run.side == side]


def describe_side(number: int, side: Side, runs: Sequence[RunRef], watermark_us: int | None) -> dict[str, Any]:
    """A side, and what runs of it hold."""
    return {
        "number": number,
        "name": side.name,
        "columns": [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in side.schema],
        "keys": list(side.keys),
        "time": side.time,
        "retention_us": side.retention_us,
        "bucket_us": side.bucket_us,
        "rows": sum(run.rows for run in runs),
        "runs": len(runs),
        "min_ts_us": min((run.min_ts for run in runs), default=None),
        "max_ts_us": max((run.max_ts for run in runs), default=None),
        "retired_until_us": _cut(side, watermark_us),
    }


def _cut(side: Side, watermark_us: int | None) -> int | None:
    """The last time that the watermark has retired."""
    if watermark_us is None or side.retention_us is None:
        return None
    return watermark_us - side.retention_us


def _buckets(sides: tuple[Side, ...], version: Version) -> list[dict[str, Any]]:
    """Rows by side and range of buckets, as their runs cover them; bytes by the share of rows in each file."""
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    for ref in version.files.values():
        in_file = sum(run.rows for run in ref.live)
        for run in ref.live:
            entry = found.setdefault((run.side, run.first_bucket, run.last_bucket), _bucket(sides, version, run))
            entry["rows"] += run.rows
            entry["runs"] += 1
            entry["approx_bytes"] += ref.size_bytes * run.rows // max(in_file, 1)
    return [found[key] for key in sorted(found)]


def _bucket(sides: tuple[Side, ...], version: Version, run: RunRef) -> dict[str, Any]:
    side = sides[run.side]
    start, end = bucket_start(run.first_bucket, side.bucket_us), bucket_end(run.last_bucket, side.bucket_us)
    cut = _cut(side, version.watermark)
    state = "live" if cut is None or cut < start else "retired" if cut >= end else "partly retired"
    return {
        "side": run.side,
        "start_us": start,
        "end_us": end,
        "buckets": run.last_bucket - run.first_bucket + 1,
        "rows": 0,
        "runs": 0,
        "approx_bytes": 0,
        "state": state,
    }


def _file(ref: FileRef, manifests: list[Manifest]) -> dict[str, Any]:
    return {
        "name": ref.name,
        "bytes": ref.size_bytes,
        "digest": ref.digest,
        "rows": sum(run.rows for run in ref.live),
        "runs": len(ref.live),
        "min_ts_us": min((run.min_ts for run in ref.live), default=None),
        "max_ts_us": max((run.max_ts for run in ref.live), default=None),
        "epochs": [m.version.epoch for m in manifests if ref.name in m.version.files],
    }


def _pins(fs: FileSystem, path: str) -> list[dict[str, Any]]:
    """The readers that protect files. A reader lives as long as its lock is held."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(fs.list_dir(f"{path}/{names.PIN_DIR}")):
            parsed = names.parse_pin(name)
            if parsed is not None:
                found.append({"manifest": parsed[0], "attempt": parsed[1], "alive": _is_held(fs, path, name)})
    return found


def _is_held(fs: FileSystem, path: str, name: str) -> bool | None:
    where = f"{path}/{names.PIN_DIR}/{name}"
    try:
        if fs.kind(where) != "file":
            return None
        lock = fs.lock(where)
    except OSError:
        return None
    if lock is None:
        return True
    lock.release()
    return False


def _beside(
    fs: FileSystem, path: str, log: ManifestLog, head: Head, manifests: list[Manifest]
) -> dict[str, list[dict[str, Any]]]:
    """What lies in the directories and is not part of a retained epoch."""
    reached = {m.name for m in manifests} | {m.base_name for m in manifests}
    reached |= {past.manifest for past in head.version.history}
    used = {name for m in manifests for name in m.version.files}
    candidates, unreached = [], []
    for name in sorted(fs.list_dir(log.directory)):
        parsed = names.parse(name)
        if parsed is None or name in reached:
            continue
        entry = {"name": name, "epoch": parsed.epoch, "line": parsed.line, "attempt": parsed.attempt}
        if parsed.epoch > head.version.epoch and name in log.candidates(parsed.epoch, head.number + 1):
            with contextlib.suppress(LsmStateError, OSError):
                used |= log.read(name).version.files.keys()
            candidates.append(entry)
        else:
            unreached.append({**entry, "bytes": _size(fs, f"{log.directory}/{name}")})
    for name in sorted(set(fs.list_dir(f"{path}/{names.SST_DIR}")) - used):
        parsed = names.parse(name)
        if parsed is not None:
            entry = {"name": name, "epoch": parsed.epoch, "line": parsed.line, "attempt": parsed.attempt}
            unreached.append({**entry, "bytes": _size(fs, f"{path}/{names.SST_DIR}/{name}")})
    return {"candidates": candidates, "unreached": unreached}


def _size(fs: FileSystem, path: str) -> int | None:
    try:
        return len(fs.map(path))
    except OSError:
        return None
