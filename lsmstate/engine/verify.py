"""Verify: walks all retained epochs, every byte and every invariant; says what is wrong and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lsmstate.engine.pins import take_pin
from lsmstate.engine.verify_rows import check_rows
from lsmstate.engine.wal_replay import log_problems
from lsmstate.errors import CorruptionError, FormatVersionError, LsmStateError, SchemaError, SnapshotExpired
from lsmstate.hashing import hash_keys
from lsmstate.keys import bucket_start, encode_key
from lsmstate.manifest import names
from lsmstate.manifest.log import Manifest
from lsmstate.refs import FileRef
from lsmstate.schema import Side
from lsmstate.sound import check_array
from lsmstate.sstable.filters import bloom_masks, build_directory
from lsmstate.sstable.format import BLOCK
from lsmstate.sstable.order import buckets_of
from lsmstate.sstable.reader import SSTable, StoredRun

if TYPE_CHECKING:
    from lsmstate.engine.core import Core

Progress = Callable[[str, int, int], None]  # what, done, of
Hashes = tuple[int, int]  # the least and the greatest
# What a hostile index with right checksums can still make the checks stumble over.
STUMBLES = (LookupError, ValueError, TypeError, ArithmeticError, MemoryError)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it must be, and the retained epochs that it harms."""

    path: str
    what: str
    epochs: tuple[int, ...]


def verify(
    core: Core,
    progress: Progress | None = None,
    candidates: Sequence[str] | None = None,
    hashes: Hashes | None = None,
) -> list[Problem]:
    """All problems of the epochs that can be opened, or of some candidates."""
    head = core.head
    if candidates is None and core.detached:
        candidates = [] if head.manifest is None else [head.manifest.name]
    if candidates is not None:
        pasts = [(_epoch_of(name), name) for name in candidates]
        pinned = list(candidates)
    elif head.manifest is not None:
        pasts = [(past.epoch, past.manifest) for past in head.version.history]
        pinned = [name for _, name in pasts] + [head.manifest.name]
        pasts.append((head.version.epoch, names.head(head.number)))
    else:
        return []
    pins = [take_pin(core.fs, core.path, name, core.attempt) for name in pinned]
    try:
        problems = _verify(core, pasts, progress, hashes, published=candidates is None)
        if candidates is None:
            problems += [Problem(path, what, ()) for path, what in log_problems(core)]  # it harms what came after them
        return problems
    finally:
        for pin in pins:
            if pin is not None:
                pin.release()


def _epoch_of(candidate: str) -> int:
    parsed = names.parse(candidate)
    if parsed is None:
        raise ValueError(f"not the name of a candidate: {candidate!r}")
    return parsed.epoch


def _verify(
    core: Core, pasts: list[tuple[int, str]], progress: Progress | None, hashes: Hashes | None, *, published: bool
) -> list[Problem]:
    problems: list[Problem] = []
    manifests: list[Manifest] = []
    for epoch, name in pasts:
        path = f"{core.log.directory}/{name}"
        try:
            manifests.append(core.log.read(name))
        except SnapshotExpired as error:
            if not published:  # its caller knows whether it was retired meanwhile
                own = core.fs.kind(path) is None
                what = "the file is missing" if own else "the full manifest that it leans on is missing"
                problems.append(Problem(path, what, (epoch,)))
            elif epoch in [past.epoch for past in core.log.head().version.history]:
                problems.append(Problem(path, str(error), (epoch,)))
        except (LsmStateError, OSError) as error:
            problems.append(Problem(path, str(error), (epoch,)))
    files: dict[FileRef, tuple[FileRef, list[Manifest]]] = {}  # one of a name, unless a manifest lies
    for manifest in manifests:
        for ref in manifest.version.files.values():
            files.setdefault(ref._replace(left=None, folded=0), (ref, []))[1].append(manifest)
    for done, (ref, users) in enumerate(files.values()):
        if progress is not None:
            progress(ref.name, done, len(files))
        epochs = tuple(manifest.version.epoch for manifest in users)
        next_id = min(manifest.version.next_id for manifest in users)
        path = f"{core.path}/{names.SST_DIR}/{ref.name}"
        problems += [Problem(path, what, epochs) for what in _check_file(core, path, ref, next_id, hashes)]
    harmed = {epoch for problem in problems for epoch in problem.epochs}
    sound = [manifest.version for manifest in manifests if manifest.version.epoch not in harmed]
    problems += [Problem(core.path, what, epochs) for what, epochs in check_rows(core, sound)]
    return problems


def problems_of(table: SSTable) -> Iterator[str]:
    """What is wrong inside one open SSTable, whoever wrote it."""
    try:
        yield from check_table(table)
    except STUMBLES as error:
        yield f"the index does not fit the data: the checks end in {type(error).__name__}"


def check_table(table: SSTable) -> Iterator[str]:
    """What is wrong inside one open SSTable."""
    bad = table.blocks.bad_blocks()
    for number in bad:
        yield f"damaged block at byte {number * BLOCK}"
    if bad:
        return
    last = None
    for number, run in enumerate(table.runs):
        side = table.sides[run.ref.side]
        key = (run.ref.side, run.ref.first_bucket)
        if last is not None and key < last:
            yield f"run {number} is out of key order"
        last = (run.ref.side, run.ref.last_bucket)
        try:
            for what in _check_run(table, side, run):
                yield f"run {number}: {what}"
        except (LsmStateError, pa.ArrowException) as error:
            yield f"run {number}: {error}"


def _check_file(core: Core, path: str, ref: FileRef, next_id: int, hashes: Hashes | None) -> Iterator[str]:
    try:
        table = SSTable(core.fs, path, dict(enumerate(core.sides)), ref)
    except FileNotFoundError:
        yield "the file is missing"
        return
    except (CorruptionError, FormatVersionError, SchemaError, OSError) as error:
        yield str(error)
        return
    for number, run in enumerate(table.runs):
        if run.ref.max_id >= next_id:
            yield f"run {number} has ids from the future"
        joined = run.ref.side < 2  # the other sides have keys of their own
        if joined and hashes is not None and not hashes[0] <= run.span.low <= run.span.high <= hashes[1]:
            yield f"run {number} has rows whose keys do not belong here: their hashes are out of range"
    yield from problems_of(table)


def _check_run(table: SSTable, side: Side, run: StoredRun) -> Iterator[str]:
    ref = run.ref
    hashes, ts, ids = run.hashes(), run.times(), run.ids()
    if (int(hashes[0]), int(hashes[-1])) != (run.span.low, run.span.high):
        yield "its range of hashes is wrong"
        return
    up = hashes[1:] > hashes[:-1]
    same = hashes[1:] == hashes[:-1]
    later = ts[1:] > ts[:-1]
    if not (up | (same & (later | ((ts[1:] == ts[:-1]) & (ids[1:] > ids[:-1]))))).all():
        yield "rows are out of order"
        return
    bounds = (int(ts.min()), int(ts.max()), int(ids.min()), int(ids.max()))
    if bounds != (ref.min_ts, ref.max_ts, ref.min_id, ref.max_id):
        yield "its bounds of times or ids are wrong"
    buckets = buckets_of(ts, side.bucket_us)
    if (int(buckets[0]), int(buckets[-1])) != (ref.first_bucket, ref.last_bucket):
        yield "its buckets are not those of its rows"
    for number in range(len(side.schema)):
        if not run.lacks(number):  # else it is NULL all the way, and not there
            check_array(run.column(number))
    keys = [run.column(side.schema.get_field_index(name)) for name in side.keys]
    if not np.array_equal(hash_keys(keys), hashes):
        yield "hashes are not those of the keys"
    if not np.array_equal(build_directory(hashes, run.span), run.directory()):
        yield "the directory does not lead to its rows"
    bloom = run.bloom()
    masks = bloom_masks(hashes)
    if not ((bloom[run.span.spread(hashes, len(bloom))] & masks) == masks).all():
        yield "the filter denies rows that are there"
    if table.key_filter.exists:
        starts = (bucket_start(int(n), side.bucket_us) for n in buckets)
        if not all(table.key_filter.may_contain([encode_key(ref.side, start)]) for start in starts):
            yield "the key filter denies keys that are there"
