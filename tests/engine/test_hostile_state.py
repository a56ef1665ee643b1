"""States whose every checksum is right and that lie: about bounds, order, places, sizes, counts and types.

What is read is a documented error or rows that the file holds; `verify` finds the lie; compaction does not write it
down anew. (The fuzzer makes the same by the million: tests/fuzz/targets/sstable.py.)
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsmstate import CorruptionError, LsmStateError, StateStore
from lsmstate.engine import wal_rows
from lsmstate.engine.identity import read_identity
from lsmstate.engine.verify import problems_of
from lsmstate.engine.wal_frames import Record
from lsmstate.manifest import names
from lsmstate.sstable.reader import SSTable
from tests.fuzz.kit import STATE, STORE, as_json, mounted, sealed
from tests.fuzz.targets import manifest as manifests
from tests.fuzz.targets import sstable as lies
from tests.support.simfs import SimFileSystem
from tests.support.small_store import SIDES, left_rows

ROOT = Path(__file__).parents[2]
Change = Callable[[dict[str, Any], bytearray], None]


def section(index: dict[str, Any], name: str) -> tuple[int, int]:
    start, length, _ = index["runs"][0][name]
    return start, length


def numbers(index: dict[str, Any], data: bytearray, name: str, kind: str) -> np.ndarray[Any, Any]:
    """A section as numbers that can be changed in place."""
    start, length = section(index, name)
    return np.frombuffer(memoryview(data)[start : start + length], kind)


def hashes_backwards(index: dict[str, Any], data: bytearray) -> None:
    hashes = numbers(index, data, "hash", "<u8")
    hashes[:] = hashes[::-1].copy()


def directory_beyond_the_rows(index: dict[str, Any], data: bytearray) -> None:
    numbers(index, data, "directory", "<u4")[1:] = 0xFFFFFFFF


def directory_downwards(index: dict[str, Any], data: bytearray) -> None:
    directory = numbers(index, data, "directory", "<u4")
    directory[:] = directory[::-1].copy()


def bloom_denies_all(index: dict[str, Any], data: bytearray) -> None:
    numbers(index, data, "bloom", "<u8")[:] = 0


def ids_repeated(index: dict[str, Any], data: bytearray) -> None:
    numbers(index, data, "id", "<u8")[:] = 1


def times_far_away(index: dict[str, Any], data: bytearray) -> None:
    numbers(index, data, "time", "<i8")[:] = (1 << 63) - 1


def offsets_outside(index: dict[str, Any], data: bytearray) -> None:
    start, length, _ = index["runs"][0]["columns"][2]["buffers"][1]
    np.frombuffer(memoryview(data)[start : start + length], "<i4")[1:] = 1 << 30


def offsets_negative(index: dict[str, Any], data: bytearray) -> None:
    start, length, _ = index["runs"][0]["columns"][2]["buffers"][1]
    np.frombuffer(memoryview(data)[start : start + length], "<i4")[:] = -(1 << 31)


def more_rows(index: dict[str, Any], data: bytearray) -> None:
    index["runs"][0]["rows"] += 1


def rows_by_the_billion(index: dict[str, Any], data: bytearray) -> None:
    index["runs"][0]["rows"] = (1 << 32) - 1


def narrower_span(index: dict[str, Any], data: bytearray) -> None:
    low, high = index["runs"][0]["hashes"]
    index["runs"][0]["hashes"] = [low + 1, high - 1]


def widest_span(index: dict[str, Any], data: bytearray) -> None:
    index["runs"][0]["hashes"] = [0, (1 << 64) - 1]


def other_bounds(index: dict[str, Any], data: bytearray) -> None:
    index["runs"][0]["ts"] = [0, 1]


def ids_from_the_future(index: dict[str, Any], data: bytearray) -> None:
    index["runs"][0]["ids"] = [1, (1 << 63) - 1]


def nulls_that_are_none(index: dict[str, Any], data: bytearray) -> None:
    index["runs"][0]["columns"][2]["nulls"] = 1


def one_place_for_all(index: dict[str, Any], data: bytearray) -> None:
    index["runs"][0]["id"] = index["runs"][0]["time"] = index["runs"][0]["hash"]


def side_of_the_other(index: dict[str, Any], data: bytearray) -> None:
    index["runs"][0]["side"], index["runs"][1]["side"] = 1, 0


LIES: list[Change] = [
    hashes_backwards, directory_beyond_the_rows, directory_downwards, bloom_denies_all, ids_repeated, times_far_away,
    offsets_outside, offsets_negative, more_rows, rows_by_the_billion, narrower_span, widest_span, other_bounds,
    ids_from_the_future, nulls_that_are_none, one_place_for_all, side_of_the_other,
]  # fmt: skip
OUT_OF_ORDER = [hashes_backwards, ids_repeated, times_far_away, other_bounds, one_place_for_all]


def lying(change: Change, rows: int) -> bytes:
    """A file with a lie in it, and all checksums right."""
    recipe = lies.recipe(lies.written(lies.SMALL, rows))
    data_bytes, index_bytes = lies._SIZES.unpack_from(recipe)
    rest = recipe[lies._SIZES.size :]
    data, text, keys = bytearray(rest[:data_bytes]), rest[data_bytes:][:index_bytes], rest[data_bytes + index_bytes :]
    runs, _, described = text.partition(b"\n")
    index = json.loads(runs)
    change(index, data)
    text = json.dumps(index).encode() + b"\n" + described
    file = lies.assembled(lies._SIZES.pack(len(data), len(text)) + bytes(data) + text + keys, lies.SMALL.version)
    assert file is not None
    return file


@pytest.mark.parametrize("rows", [7, 160])
@pytest.mark.parametrize("change", LIES, ids=lambda change: change.__name__)
def test_lying_table_is_reported_and_harms_no_reader(change: Change, rows: int) -> None:
    file = lying(change, rows)
    lies.read(lies.SMALL, file)  # scans, probes, heaviest keys, verify, compaction: documented errors only
    fs = mounted({lies.WHERE: file})
    try:
        found = list(problems_of(SSTable(fs, lies.WHERE, dict(enumerate(SIDES)))))
    except LsmStateError as error:
        found = [str(error)]
    assert found


@pytest.mark.parametrize("change", OUT_OF_ORDER, ids=lambda change: change.__name__)
def test_table_out_of_order_is_left_alone_by_compaction(change: Change) -> None:
    file = lying(change, 160)
    table = SSTable(mounted({lies.WHERE: file}), lies.WHERE, dict(enumerate(SIDES)))
    with pytest.raises(CorruptionError, match="rows in order, within their bounds"):
        table.runs[0].check_order()


def test_sound_table_passes_what_compaction_asks_of_it() -> None:
    table = SSTable(mounted({lies.WHERE: lies.written(lies.SMALL, 160)}), lies.WHERE, dict(enumerate(SIDES)))
    for run in table.runs:
        run.check_order()


class Bomb(pa.ExtensionType):  # type: ignore[misc]
    """A type whose metadata would be unpickled, where such types are loaded."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "arrow.py_extension_type")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"cbuiltins\nexec\n(Vraise SystemExit('run')\ntR."

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Bomb:
        return cls()


def test_extension_type_in_a_schema_runs_no_code() -> None:
    told = SIDES[0].describe()
    schema = SIDES[0].schema.append(pa.field("bomb", Bomb()))
    told["schema"] = base64.b64encode(schema.serialize()).decode()
    fs = mounted({f"{STATE}/STATE": sealed("STATE", as_json({"store": STORE, "sides": [told]}))})
    identity = read_identity(fs, STATE)
    assert identity is not None
    assert identity.sides[0].schema.field("bomb").type == pa.int64()  # stored as what it is made of


def sources() -> Iterator[Path]:
    for package in ("lsmstate", "iopool", "compaction"):
        yield from (ROOT / package).rglob("*.py")


def test_nothing_on_the_paths_of_states_unpickles_or_evaluates() -> None:
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not forbidden & {alias.name.partition(".")[0] for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in forbidden, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), path


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_rows_in_a_log_are_refused_before_they_are_unpacked(codec: str) -> None:
    batch, sink = left_rows(1, 5), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    _, message = (each.serialize() for each in pa.ipc.MessageReader.open_stream(sink.getvalue()))
    payload = wal_rows._ROWS.pack(0, 1, 1) + wal_rows._LENGTH.pack(len(message)) + message.to_pybytes()
    with pytest.raises(CorruptionError, match="rows of a side"):
        wal_rows.rows_in(Record(wal_rows.ROWS, payload, 1, "/wal", 0), tuple(SIDES))


def nested(depth: int) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    for _ in range(depth):
        meta = {"a": meta}
    return meta


@pytest.mark.parametrize("depth", [70, 900])
def test_deeply_nested_meta_is_refused_on_the_way_in(depth: int) -> None:
    with StateStore.open(STATE, SIDES, fs=SimFileSystem()) as store, pytest.raises(ValueError, match="JSON can tell"):
        store.snapshot_epoch(1, meta=nested(depth))


@pytest.mark.parametrize(("depth", "is_sound"), [(10, True), (70, False), (900, False)])
def test_deeply_nested_meta_is_refused_on_the_way_out(depth: int, is_sound: bool) -> None:
    body = {**json.loads(dict(manifests.seeds())["full"]), "meta": nested(depth), "publication": 1}
    document = sealed(manifests.FULL, as_json(body))
    files = {manifests.FULL: document, names.head(1): document}
    fs = mounted({f"{STATE}/STATE": manifests.IDENTITY, **{f"{STATE}/manifest/{n}": d for n, d in files.items()}})
    if is_sound:
        StateStore.open(STATE, read_only=True, fs=fs).close()
        return
    with pytest.raises(CorruptionError, match="nest deeper than 64"):
        StateStore.open(STATE, read_only=True, fs=fs)
