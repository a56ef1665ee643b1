"""The FORMAT.md files are true: here a file and a state are read by them alone, without the readers of the engine."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.types as pt
import pytest
import xxhash

from iopool import LocalFileSystem
from lsmstate.hashing import hash_keys
from lsmstate.manifest import codec
from lsmstate.sstable import format as sstable_format
from lsmstate.sstable.reader import SSTable
from tests.support import nested_store
from tests.support.cli_state import ADS, build, head, newest_file

ROOT = Path(__file__).parents[1]
SSTABLE_DOC = (ROOT / "lsmstate/sstable/FORMAT.md").read_text()
MANIFEST_DOC = (ROOT / "lsmstate/manifest/FORMAT.md").read_text()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("formats") / "state")


class File:
    """An SSTable taken apart as FORMAT.md says."""

    def __init__(self, path: Path, version: int = 1) -> None:
        self.bytes = path.read_bytes()
        self.footer = self.bytes[-80:]
        magic, told, block, self.uid = struct.unpack_from("<8sII16s", self.footer)
        assert (magic, told, block) == (b"LSMSTATE", version, 4096)
        self.data_bytes, self.index_bytes, self.sums_bytes, self.filter_bytes = struct.unpack_from(
            "<4Q", self.footer, 32
        )
        meta = self.bytes[self.data_bytes : -80]
        self.meta = meta
        runs, sides = meta[: self.index_bytes].split(b"\n")
        self.index: dict[str, Any] = json.loads(runs)
        self.sides: dict[str, Any] = json.loads(sides)
        self.sums = struct.unpack(f"<{self.sums_bytes // 8}Q", meta[self.index_bytes :][: self.sums_bytes])
        self.filter = meta[self.index_bytes + self.sums_bytes :]

    def section(self, place: list[int], kind: str) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.bytes, kind, place[1] // np.dtype(kind).itemsize, place[0])


def test_documents_tell_the_constants_of_the_code() -> None:
    assert f"formats {sstable_format.FLAT} and {sstable_format.TREES}\n" in SSTABLE_DOC
    assert f"formats {codec.PLAIN} and {codec.NESTED}\n" in MANIFEST_DOC
    assert f"blocks of {sstable_format.BLOCK} bytes" in SSTABLE_DOC
    assert f"header, {sstable_format.HEADER_BYTES} bytes" in SSTABLE_DOC
    assert f"footer, {sstable_format.FOOTER_BYTES} bytes" in SSTABLE_DOC
    assert f"multiple of {sstable_format.ALIGN}" in SSTABLE_DOC
    assert sstable_format.META_MAX_BYTES == codec.DOCUMENT_MAX_BYTES == 256 << 20


def test_header_footer_and_checksums_are_as_described(state: Path) -> None:
    path = newest_file(state)
    file = File(path)
    assert file.bytes[:32] == struct.pack("<8sII16s", b"LSMSTATE", 1, 4096, file.uid)
    assert file.bytes[32:64] == bytes(32)
    assert file.uid == xxhash.xxh3_128(path.name.encode()).digest()
    assert len(file.bytes) == file.data_bytes + file.index_bytes + file.sums_bytes + file.filter_bytes + 80
    first, last = struct.unpack("<QQ", file.uid)
    assert struct.unpack_from("<2Q", file.footer, 64) == (
        xxhash.xxh3_64_intdigest(file.meta, seed=first),
        xxhash.xxh3_64_intdigest(file.footer[:72]),
    )
    blocks = [file.bytes[: file.data_bytes][at : at + 4096] for at in range(0, file.data_bytes, 4096)]
    seeds = [(last + n * 0x9E3779B97F4A7C15) % 2**64 for n in range(len(blocks))]
    assert file.sums == tuple(xxhash.xxh3_64_intdigest(b, seed=s) for b, s in zip(blocks, seeds, strict=True))
    assert file.index_bytes % 8 == file.data_bytes % 64 == 0


def test_index_and_sections_are_as_described(state: Path) -> None:
    file = File(newest_file(state))
    assert {*file.index} == {"epoch", "schema_ids", "runs"}
    assert {*file.sides["0"]} == {"name", "schema", "keys", "time", "retention_us", "bucket_us"}
    assert {*file.sides} == {*file.index["schema_ids"]}
    ends = [64]
    for run in file.index["runs"]:
        assert {*run} == {
            *("side", "buckets", "rows", "ts", "ids", "hashes", "bloom", "directory", "hash", "time", "id", "columns"),
        }
        columns = [column["buffers"] for column in run["columns"] if column is not None]
        places = [run[name] for name in ("bloom", "directory", "hash", "time", "id")]
        for at, length, told in sorted(places + [p for buffers in columns for p in buffers if p is not None]):
            assert at == -(-ends[-1] // 64) * 64
            assert not any(file.bytes[ends[-1] : at])
            seed = (int.from_bytes(file.uid[:8], "little") + at * 0x9E3779B97F4A7C15) % 2**64
            assert told == xxhash.xxh3_64_intdigest(file.bytes[at : at + length], seed)
            ends.append(at + length)
    assert file.data_bytes == -(-ends[-1] // 64) * 64


def test_rows_filter_and_directory_are_as_described(state: Path) -> None:
    file = File(newest_file(state))
    for run in file.index["runs"]:
        rows, (low, high) = run["rows"], run["hashes"]
        hashes, ts, ids = (
            file.section(run[name], kind) for name, kind in (("hash", "<u8"), ("time", "<i8"), ("id", "<u8"))
        )
        assert len(hashes) == len(ts) == len(ids) == rows
        order = list(zip(hashes.tolist(), ts.tolist(), ids.tolist(), strict=True))
        assert order == sorted(order)
        assert [low, high, *run["ts"]] == [order[0][0], order[-1][0], int(ts.min()), int(ts.max())]
        words, shift = file.section(run["bloom"], "<u8").tolist(), max(0, (high - low).bit_length() - 32)
        assert len(words) == max(1, rows * 12 // 64)
        bits = max(1, rows.bit_length() - 1)
        directory = file.section(run["directory"], "<u4").tolist()
        assert len(directory) == 2**bits + 1
        assert directory[-1] == rows
        for row, h in enumerate(hashes.tolist()):
            word, slot = (
                (((h - low) >> shift) * ((n << 32) // (((high - low) >> shift) + 1))) >> 32
                for n in (len(words), 2**bits)
            )
            assert all(words[word] >> ((h >> by) & 63) & 1 for by in (0, 6, 12, 18))
            assert directory[slot] <= row < directory[slot + 1]


def test_columns_are_as_described(state: Path) -> None:
    file = File(newest_file(state))
    run = file.index["runs"][0]
    key, time, title = run["columns"]
    assert time is None
    valid, values = (file.section(place, kind) for place, kind in zip(key["buffers"], ("u1", "<i8"), strict=True))
    is_valid = np.unpackbits(valid, bitorder="little")[: run["rows"]].astype(bool)
    assert int((~is_valid).sum()) == key["nulls"] > 0
    ids = pa.array(values, mask=~is_valid)
    assert np.array_equal(hash_keys([ids]), file.section(run["hash"], "<u8"))
    offsets, text = file.section(title["buffers"][1], "<i4"), file.section(title["buffers"][2], "u1")
    assert (offsets[0], offsets[-1], len(offsets)) == (0, len(text), run["rows"] + 1)


def column_of(file: File, kind: pa.DataType, rows: int, told: dict[str, Any]) -> pa.Array:
    """A column put together as FORMAT.md says, without the engine's readers."""
    if "parts" in told:
        assert told["nulls"] == sum(part["nulls"] for part in told["parts"])
        assert rows == sum(part["rows"] for part in told["parts"])
        return pa.concat_arrays([column_of(file, kind, part["rows"], part) for part in told["parts"]])
    buffers = [None if p is None else pa.py_buffer(file.bytes[p[0] : p[0] + p[1]]) for p in told["buffers"]]
    if "children" not in told:
        return pa.Array.from_buffers(kind, rows, buffers, told["nulls"])
    kinds = [kind.field(number).type for number in range(kind.num_fields)]
    if pt.is_map(kind):
        kinds = [pa.struct([kind.key_field, kind.item_field])]
    assert len(kinds) == len(told["children"])
    children = [column_of(file, k, part["rows"], part) for k, part in zip(kinds, told["children"], strict=True)]
    if pt.is_null(kind):
        assert told["nulls"] == rows
        return pa.nulls(rows)
    if pt.is_fixed_size_binary(kind):
        buffers.append(pa.py_buffer(b""))
    return pa.Array.from_buffers(kind, rows, buffers, told["nulls"], 0, children)


def test_trees_are_as_described(tmp_path: Path) -> None:
    side = nested_store.SIDES[0]
    nested_store.build(LocalFileSystem(), str(tmp_path / "state"))
    path = newest_file(tmp_path / "state")
    file = File(path, version=2)
    assert struct.unpack_from("<I", file.bytes, 8) == (2,)
    stored = SSTable(LocalFileSystem(), str(path)).runs
    for run, other in zip(file.index["runs"], stored, strict=True):
        kinds = nested_store.SIDES[run["side"]].schema.types
        for number, (kind, told) in enumerate(zip(kinds, run["columns"], strict=True)):
            if told is not None:
                column = column_of(file, kind, run["rows"], told)
                column.validate(full=True)
                assert column.equals(other.column(number))
    assert len(side.schema) > 40


def test_key_filter_is_as_described(state: Path) -> None:
    file = File(newest_file(state))
    rate, slices, width, capacity, count = struct.unpack_from("<dQQQQ", file.filter)
    assert (rate, slices, capacity) == (0.01, 7, count)
    bits = np.unpackbits(np.frombuffer(file.filter, np.uint8, offset=40), bitorder="little")
    keys = set()
    for run in file.index["runs"]:
        bucket_us = file.sides[str(run["side"])]["bucket_us"]
        starts = np.unique(file.section(run["time"], "<i8") // bucket_us) * bucket_us
        keys |= {struct.pack(">BQ", run["side"], int(start) + 2**63) for start in starts}
    assert len(keys) == count
    for key in keys:
        told = str(mmh3.hash64(key, signed=False)[0]).encode()
        digest = xxhash.xxh128(xxhash.xxh128(bytes(4)).digest() + told).digest()
        for number, place in enumerate(struct.unpack("<8H", digest)[:7]):
            assert bits[number * width + place % width]


def test_documents_are_as_described(state: Path) -> None:
    bodies = {}
    for path in [state / "STATE", *(state / "manifest").iterdir()]:
        line, _, rest = path.read_bytes().partition(b"\n")
        magic, version, name, digest = line.decode().split(" ")
        assert (magic, version, rest[-1:]) == ("lsmstate", "1", b"\n")
        assert path.name.startswith("head-") or name == path.name
        assert digest == xxhash.xxh3_128_hexdigest(f"1 {name}\n".encode() + rest[:-1])
        bodies[path.name] = json.loads(rest)
    assert {*bodies.pop("STATE")} == {"store", "sides"}
    common = {"store", "epoch", "line", "publication", "parent", "next_id", "watermark", "tombstones"}
    common |= {"history", "meta", "deltas"}
    for name, body in bodies.items():
        assert {*body} - common == ({"base", "added", "dropped"} if body["deltas"] else {"files"})
        assert not common - {*body}
        if name.startswith("head-"):
            assert name == f"head-{body['publication']:016d}"
    newest = bodies[head(state)]
    (added,) = (entry for entry in newest["added"] if entry[0] == newest_file(state).name)
    file = File(newest_file(state))
    assert added[1:3] == [len(file.bytes), xxhash.xxh3_128_hexdigest(file.footer)]
    assert [run[0] for run in added[3]] == [run["side"] for run in file.index["runs"]]
    for word in {*common, "base", "added", "dropped", "files"}:
        assert re.search(rf"\b{word}\b", MANIFEST_DOC)


def test_heads_are_second_names_and_names_are_as_described(state: Path) -> None:
    manifests = {path.stat().st_ino: path.name for path in (state / "manifest").iterdir() if "head" not in path.name}
    for path in (state / "manifest").glob("head-*"):
        assert path.stat().st_ino in manifests
    for path in [*(state / "sst").iterdir(), *(state / "manifest").glob("*.*")]:
        assert re.fullmatch(r"\d{12}-\d{6}-[0-9a-z]{1,32}-\d{6}\.(full|delta|sst)", path.name)
    assert ADS.name == json.loads((state / "STATE").read_bytes().partition(b"\n")[2])["sides"][0]["name"]
