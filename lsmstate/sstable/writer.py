"""Writes an SSTable: runs in key order, an index, a key filter, block sums, a footer.

The file is created exclusively, written once, fsynced, and its directory fsynced, before anyone learns of it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from iopool import FileSystem, WritableFile
from lsmstate.errors import CorruptionError
from lsmstate.keys import bucket_start, encode_key
from lsmstate.refs import FileRef
from lsmstate.schema import Side
from lsmstate.sstable.blocks import BlockWriter
from lsmstate.sstable.filters import KEY_FILTER_MAX, build_key_filter
from lsmstate.sstable.format import FLAT, TREES, Footer, meta_sum, pack_footer, pack_header, uid_of
from lsmstate.sstable.run import WritableRun
from lsmstate.sstable.trees import write_any


class Abandoned(Exception):
    """Raised by a run that is being written, to give up the file."""


def write_sstable(
    fs: FileSystem,
    directory: str,
    name: str,
    sides: Mapping[int, Side],
    runs: Sequence[WritableRun],
    epoch: int,
    folded: int = 0,
) -> FileRef:
    """Makes `directory/name` durable. Requires: runs in key order, at least one."""
    uid = uid_of(name)
    file = fs.create(f"{directory}/{name}")
    try:
        try:
            size, footer = _write(file, uid, sides, runs, epoch)
            file.sync()
        finally:
            file.close()
        fs.sync_dir(directory)
    except (OSError, Abandoned, CorruptionError):
        with contextlib.suppress(OSError):  # nobody knows of it: if it stays, it is collected when its epoch retires
            fs.unlink(f"{directory}/{name}")
        raise
    return FileRef(name, size, xxhash.xxh3_128_hexdigest(footer), tuple(run.ref for run in runs), None, folded)


def _write(
    file: WritableFile, uid: bytes, sides: Mapping[int, Side], runs: Sequence[WritableRun], epoch: int
) -> tuple[int, bytes]:
    writer = BlockWriter(file, uid)
    used = sorted({run.ref.side for run in runs})
    version = TREES if any(sides[number].is_nested for number in used) else FLAT
    writer.append(pack_header(uid, version))
    told = [_write_run(writer, sides[run.ref.side], run) for run in runs]
    sums = writer.finish()
    index = _json({"epoch": epoch, "schema_ids": {str(n): sides[n].schema_id for n in used}, "runs": told})
    index += b"\n" + _json({str(n): sides[n].describe() for n in used})
    index += b" " * (-len(index) % 8)
    keys = build_key_filter(_keys(sides, runs))
    meta = index + sums.tobytes() + keys
    footer = Footer(uid, writer.offset, len(index), sums.nbytes, len(keys), meta_sum(uid, meta), version)
    tail = pack_footer(footer)
    file.write([meta, tail])
    return footer.file_bytes, tail


def _json(told: dict[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()


def _write_run(writer: BlockWriter, side: Side, run: WritableRun) -> dict[str, Any]:
    """Writes the sections of a run, those that a probe reads first coming first; gives its entry in the index."""
    ref = run.ref
    return {
        "side": ref.side,
        "buckets": [ref.first_bucket, ref.last_bucket],
        "rows": ref.rows,
        "ts": [ref.min_ts, ref.max_ts],
        "ids": [ref.min_id, ref.max_id],
        "hashes": [run.span.low, run.span.high],
        "bloom": writer.append(run.bloom().data),
        "directory": writer.append(run.directory().data),
        "hash": writer.append_all(piece.data for piece in run.hash_pieces()),
        "time": writer.append_all(piece.data for piece in run.time_pieces()),
        "id": writer.append_all(piece.data for piece in run.id_pieces()),
        "columns": [
            None if name == side.time else write_any(writer, side.layouts[number], run.column_pieces(number))
            for number, (name, _) in enumerate(side.columns)
        ],
    }


def _keys(sides: Mapping[int, Side], runs: Sequence[WritableRun]) -> list[bytes]:
    """The keys of all buckets that hold a row; none if they are too many for a filter."""
    keys: list[bytes] = []
    for run in runs:
        width = sides[run.ref.side].bucket_us
        numbers = run.bucket_numbers()
        if len(keys) + len(numbers) > KEY_FILTER_MAX:
            return []
        keys += [encode_key(run.ref.side, bucket_start(n, width)) for n in numbers]
    return keys
