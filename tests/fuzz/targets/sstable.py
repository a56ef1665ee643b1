"""SSTables (sstable/): a file as it is, and one that lies in its index and its data with every checksum right.

An input of the second kind is `<II`, the bytes of data and of the index, then the data, the index and the key filter.
The sums of sections, blocks, index and footer are worked out, a manifest is written that agrees with the file, and then
the state is scanned, probed, and verified.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from lsmstate import LsmStateError, Options, Side, StateStore
from lsmstate.engine.verify import problems_of
from lsmstate.manifest import names
from lsmstate.manifest.codec import encode
from lsmstate.manifest.version import Version, encode_version
from lsmstate.refs import FileRef
from lsmstate.sound import check_batch
from lsmstate.sstable.blocks import block_seed, section_seed
from lsmstate.sstable.format import (
    ALIGN,
    BLOCK,
    FLAT,
    FOOTER_BYTES,
    Footer,
    meta_sum,
    pack_footer,
    uid_of,
    unpack_footer,
)
from lsmstate.sstable.reader import SSTable
from tests.fuzz.kit import STATE, STORE, as_json, documented, mounted, sealed
from tests.support.simfs import SimFileSystem
from tests.support.small_store import SIDES, left_rows, right_rows

NAME = str(names.Name(1, 1, "fuzz", 1, "sst"))
UID = uid_of(NAME)
WHERE = f"{STATE}/sst/{NAME}"
HEAD = str(names.Name(1, 1, "fuzz", 2, "full"))
NEXT_ID = 1 << 40
_SIZES = struct.Struct("<II")
Rows = Callable[[int, int], pa.RecordBatch]  # from a first number on, so many


@dataclass(frozen=True)
class Kind:
    """What lies in the files: their sides, rows of them, and the version of the format."""

    sides: list[Side]
    rows: tuple[Rows, Rows]
    version: int

    @property
    def identity(self) -> bytes:
        """The file STATE."""
        told = as_json({"store": STORE, "sides": [side.describe() for side in self.sides]})
        return sealed("STATE", told, self.version)


SMALL = Kind(SIDES, (left_rows, right_rows), FLAT)


def seeds() -> Iterator[tuple[str, bytes]]:
    yield "file", written(SMALL, 7)
    yield "small", recipe(written(SMALL, 7))
    yield "hot", recipe(written(SMALL, 160))


def run(data: bytes) -> None:
    run_as(SMALL, data)


def written(kind: Kind, rows: int) -> bytes:
    """The file of a state with some rows of each side, of five keys."""
    fs = SimFileSystem()
    options = Options(auto_compact=False)
    with StateStore.open(STATE, kind.sides, options, fs=fs, attempt="golden") as store:
        for side in (0, 1):
            store.append(side, kind.rows[side](1, rows))
        store.snapshot_epoch(1)
        (ref,) = store.prepared_files()
        return fs.read(f"{STATE}/sst/{ref.name}", 1 << 24)


def recipe(file: bytes) -> bytes:
    """An input that makes this file, under the name that it has here."""
    footer = unpack_footer("file", memoryview(file))
    data, rest = file[: footer.data_bytes], file[footer.data_bytes : -FOOTER_BYTES]
    keys = rest[footer.index_bytes + footer.sums_bytes :]
    return _SIZES.pack(len(data), footer.index_bytes) + data + rest[: footer.index_bytes] + keys


def run_as(kind: Kind, data: bytes) -> None:
    """Takes an input as a file, and as one of the second kind."""
    with documented():
        list(problems_of(SSTable(mounted({WHERE: data}), WHERE)))
    file = assembled(data, kind.version)
    if file is not None:
        read(kind, file)


def assembled(data: bytes, version: int) -> bytes | None:
    """The file that an input of the second kind asks for."""
    if len(data) < _SIZES.size:
        return None
    data_bytes, index_bytes = _SIZES.unpack_from(data)
    rest = data[_SIZES.size :]
    body = rest[:data_bytes]
    body += bytes(-len(body) % ALIGN)
    index, keys = rest[data_bytes : data_bytes + index_bytes], rest[data_bytes + index_bytes :]
    runs, newline, described = index.partition(b"\n")
    try:
        told = json.loads(runs)
        _sum_sections(told, body)
        runs = json.dumps(told, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        pass
    index = runs + newline + described
    index += b" " * (-len(index) % 8)
    blocks = [body[at : at + BLOCK] for at in range(0, len(body), BLOCK)]
    sums = np.array([xxhash.xxh3_64_intdigest(b, block_seed(UID, n)) for n, b in enumerate(blocks)], "<u8").tobytes()
    meta = index + sums + keys
    footer = Footer(UID, len(body), len(index), len(sums), len(keys), meta_sum(UID, meta), version)
    return body + meta + pack_footer(footer)


def _sum_sections(told: Any, body: bytes) -> None:
    """Makes the sums right of all that looks like the place of a section."""
    waiting = [told]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list) and len(part) == 3 and all(type(number) is int for number in part):
            start, length, _ = part
            if 0 <= start <= start + length <= len(body):
                part[2] = xxhash.xxh3_64_intdigest(body[start : start + length], section_seed(UID, start))
        elif isinstance(part, dict | list):
            waiting += part.values() if isinstance(part, dict) else part


def read(kind: Kind, file: bytes) -> None:
    """Does with the file all that can be done with one in a state that agrees with it."""
    fs = mounted({WHERE: file, f"{STATE}/STATE": kind.identity})
    with documented():
        list(problems_of(SSTable(fs, WHERE)))
    try:
        table = SSTable(fs, WHERE, dict(enumerate(kind.sides)))
    except LsmStateError:
        return
    refs = tuple(run.ref for run in table.runs)
    ref = FileRef(NAME, len(file), table.digest, refs)
    body = encode_version(Version(1, 1, NEXT_ID, None, {NAME: ref}), None)
    body |= {"store": STORE, "publication": 1, "deltas": 0, "parent": None}
    manifest = encode(HEAD, body)
    fs = mounted(
        {
            WHERE: file,
            f"{STATE}/STATE": kind.identity,
            f"{STATE}/manifest/{HEAD}": manifest,
            f"{STATE}/manifest/{names.head(1)}": manifest,
        }
    )
    with documented(), StateStore.open(STATE, read_only=True, fs=fs) as store:
        _ask(kind, store)
    with documented(), StateStore.open(STATE, fs=fs) as store:
        store.compact(major=True)
        store.snapshot_epoch(2)


def _ask(kind: Kind, store: StateStore) -> None:
    for side in (0, 1):
        for bounds in ((None, None), (-1_000_000, 2_000_000)):
            for rows in (3, 200):
                with documented():
                    asking = kind.rows[1 - side](1, rows)
                    for batch in store.probe(side, asking, *bounds, row_ids=True):
                        check(batch)
        with documented(), store.snapshot() as view:
            for ordered in (False, True):
                for batch in view.scan(side, ordered=ordered, row_ids=True):
                    check(batch)
            for batch in view.scan(side, 0, 10_000_000):
                check(batch)
        with documented(), store.snapshot() as view:
            view.heaviest(side)
    store.verify()
    store.stats()


def check(batch: pa.RecordBatch) -> None:
    """Every value lies inside of its buffers, whatever it says."""
    check_batch(batch)
    for column in batch.columns:
        column.take(pa.array([0, len(column) - 1])) if len(column) else None
