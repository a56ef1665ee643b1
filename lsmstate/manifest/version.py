"""Versions: what a state consists of at one epoch, immutable.

A version names its files with their bounds, its tombstones, its watermark and its next row id. It is written whole,
or as the difference to a whole one; either way two documents at most tell all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from lsmstate.keys import TS_MAX, TS_MIN
from lsmstate.limited_json import check_depth
from lsmstate.manifest import names
from lsmstate.refs import ID_MAX, FileRef, RunRef, Tombstone, check_run, narrowed

EPOCH_MAX = 10**12 - 1
_LINE_MAX = 10**12 - 1


@dataclass(frozen=True, slots=True)
class Past:
    """An older epoch that can still be opened: its manifest's name."""

    epoch: int
    manifest: str


class LogMark(NamedTuple):
    """Where a write-ahead log goes on from a version: a segment begins there, what lies behind is in the files."""

    segment: int
    position: int


@dataclass(frozen=True)
class Version:
    """The whole of a state at one moment."""

    epoch: int = 0
    line: int = 1
    next_id: int = 1
    watermark: int | None = None
    files: Mapping[str, FileRef] = field(default_factory=dict)
    tombstones: tuple[Tombstone, ...] = ()
    history: tuple[Past, ...] = ()  # ascending, without this epoch
    meta: Mapping[str, Any] = field(default_factory=dict)
    wal: LogMark | None = None  # in a state with a write-ahead log

    def with_file(self, ref: FileRef) -> Version:
        """The version and one more file."""
        return replace(self, files={**self.files, ref.name: ref})

    def after(self, next_id: int) -> Version:
        """The version once rows up to `next_id` were written."""
        return replace(self, next_id=next_id)

    def without(self, gone: Iterable[str]) -> Version:
        """The version less some files."""
        drop = set(gone)
        return replace(self, files={n: f for n, f in self.files.items() if n not in drop}) if drop else self

    def rows(self, side: int) -> int:
        """Rows of a side in files, dead ones included."""
        return sum(run.rows for run in self.parts() if run.side == side)

    def parts(self) -> list[RunRef]:
        """All that is read of all files."""
        return [run for ref in self.files.values() for run in ref.live]


def encode_version(version: Version, base: Version | None) -> dict[str, Any]:
    """The body of a manifest; with a base, only what differs from its files."""
    files = version.files
    body: dict[str, Any] = {
        "epoch": version.epoch,
        "line": version.line,
        "next_id": version.next_id,
        "watermark": version.watermark,
        "tombstones": [[t.side, t.start_ts, t.end_ts, t.id] for t in version.tombstones],
        "history": [[past.epoch, past.manifest] for past in version.history],
        "meta": dict(version.meta),
    }
    if version.wal is not None:
        body["wal"] = list(version.wal)
    if base is None:
        body["files"] = [encode_file(ref) for ref in files.values()]
    else:
        body["added"] = [encode_file(ref) for name, ref in files.items() if base.files.get(name) != ref]
        body["dropped"] = [name for name, ref in base.files.items() if files.get(name) != ref]
    return body


def decode_version(body: Mapping[str, Any], base: Version | None, sides: int) -> Version:
    """The version of a manifest's body. Raises KeyError, TypeError or ValueError where the body is none."""
    if base is None:
        files = [decode_file(told) for told in body["files"]]
    else:
        dropped = {str(name) for name in body["dropped"]}
        if not dropped <= set(base.files):
            raise ValueError("drops a file that its base does not have")
        files = [ref for name, ref in base.files.items() if name not in dropped]
        files += [decode_file(told) for told in body["added"]]
    unknown = {run.side for ref in files for run in ref.runs} - set(range(sides))
    if unknown:
        raise ValueError(f"one with side {min(unknown)}, which the state does not have")
    watermark = body["watermark"]
    if not isinstance(body["meta"], dict):
        raise TypeError("meta is not an object")
    check_depth(body["meta"])
    epoch = _within(body["epoch"], 0, EPOCH_MAX)
    history = tuple(Past(_within(number, 1, EPOCH_MAX), _safe(manifest)) for number, manifest in body["history"])
    known = [past.epoch for past in history] + [epoch]
    if any(before >= after for before, after in pairwise(known)):
        raise ValueError("epochs that do not ascend")
    return Version(
        epoch,
        _within(body["line"], 1, _LINE_MAX),
        _within(body["next_id"], 1, ID_MAX),
        None if watermark is None else _within(watermark, TS_MIN, TS_MAX),
        {ref.name: ref for ref in files},
        tuple(decode_tombstone(told, sides) for told in body["tombstones"]),
        history,
        body["meta"],
        _decode_mark(body.get("wal")),
    )


def encode_file(ref: FileRef) -> list[Any]:
    """A file as JSON."""
    told: list[Any] = [ref.name, ref.size_bytes, ref.digest, [list(run) for run in ref.runs]]
    if ref.left is not None or ref.folded:
        left = None if ref.left is None else [part and [part.first_bucket, part.min_ts, part.rows] for part in ref.left]
        told += [left, ref.folded]
    return told


def decode_file(told: list[Any]) -> FileRef:
    """What `encode_file` told. Raises KeyError, TypeError or ValueError where it is none."""
    name, size, digest, told_runs, *more = told
    runs = tuple(decode_run(run) for run in told_runs)
    told_left, folded = more or (None, 0)
    left = None if told_left is None else _decode_left(runs, told_left)
    return FileRef(_safe(name), _within(size, 0, ID_MAX), _safe(digest), runs, left, _within(folded, 0, ID_MAX))


def decode_run(told: list[Any]) -> RunRef:
    """The bounds of a run. Raises KeyError, TypeError or ValueError where they are none."""
    run = RunRef(*map(int, told))
    check_run(run)
    return run


def decode_tombstone(told: list[Any], sides: int) -> Tombstone:
    """A tombstone of one of so many sides. Raises TypeError or ValueError where it is none."""
    side, start, end, number = map(int, told)
    if not (0 <= side < sides and TS_MIN <= start < end <= TS_MAX + 1 and 0 <= number <= ID_MAX):
        raise ValueError("a tombstone that cannot be")
    return Tombstone(side, start, end, number)


def _decode_left(runs: tuple[RunRef, ...], told: list[Any]) -> tuple[RunRef | None, ...]:
    left: list[RunRef | None] = []
    for run, part in zip(runs, told, strict=True):
        if part is None:
            left.append(None)
            continue
        first, min_ts, rows = map(int, part)
        if not (run.first_bucket <= first <= run.last_bucket and run.min_ts <= min_ts <= run.max_ts):
            raise ValueError("what is left of a run lies outside of it")
        if not 1 <= rows <= run.rows:
            raise ValueError("more is left of a run than it holds")
        left.append(narrowed(run, first, min_ts, rows))
    return tuple(left)


def _decode_mark(told: Any) -> LogMark | None:
    if told is None:
        return None
    segment, position = map(int, told)
    if segment < 1 or position < 0:
        raise ValueError("an impossible place in the log")
    return LogMark(segment, position)


def _within(told: Any, least: int, most: int) -> int:
    number = int(told)
    if not least <= number <= most:
        raise ValueError("a number that cannot be")
    return number


def _safe(name: object) -> str:
    if not isinstance(name, str) or not names.is_safe(name):
        raise ValueError("a name that is not allowed")
    return name
