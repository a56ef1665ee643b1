"""The peer: the state of a stream join on RocksDB through rocksdict, as fast as we could make it from Python.

A row lies at `[side 1B | join key | ts 8B | seq 8B]`, big endian, its payload (the other columns, packed) as
the value. String keys are padded to a fixed width with their size behind, so that every key has one length.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rocksdict import (
    Checkpoint,
    Options,
    PlainTableFactoryOptions,
    Rdict,
    ReadOptions,
    SliceTransform,
    WriteBatch,
    WriteOptions,
)

Keys = npt.NDArray[np.int64] | list[bytes]

_MIN_TS, _MAX_TS = -(2**63), 2**63 - 1
_LAST_SEQ = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Matches:
    """One entry per match: which probe row found it, and the payload it found."""

    count: int
    probe_index: npt.NDArray[np.int64]
    payloads: list[bytes]


class RocksJoinState:
    def __init__(self, path: Path, *, key_bytes: int | None = None) -> None:
        """Open at the newest committed epoch under `path`, or empty.

        `key_bytes` is the width of the widest string key; None means int64 keys.
        """
        self._key_bytes = key_bytes
        key_fields = [("key", ">i8")] if key_bytes is None else [("key", f"S{key_bytes}"), ("size", "u1")]
        self._record = np.dtype([("side", "u1"), *key_fields, ("ts", ">u8"), ("seq", ">u8")])
        self._path, self._live = path, path / "live"
        committed = sorted(path.glob("epoch-????????"))
        self._checkpoint = committed[-1] if committed else None
        self._epoch = int(self._checkpoint.name[6:]) if self._checkpoint else 0
        if self._live.exists():
            shutil.rmtree(self._live)
        path.mkdir(parents=True, exist_ok=True)
        if self._checkpoint:
            shutil.copytree(self._checkpoint, self._live)
        self._db = Rdict(str(self._live), _options(self._record.itemsize))
        self._seq = self._db.latest_sequence_number()  # one a row, kept by RocksDB: never given twice
        self._no_wal = WriteOptions()
        # the stub of rocksdict calls this a method: it is a property
        self._no_wal.disable_wal = True  # type: ignore[assignment, method-assign]

    def append(self, side: int, keys: Keys, ts: npt.NDArray[np.int64], payloads: list[bytes]) -> None:
        """Add a batch of rows, seen by every probe from now on and durable with the next `commit`."""
        record, order = self._sorted(side, keys, ts)
        record["seq"] = order + self._seq
        self._seq += len(ts)
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        for key, row in zip(_as_bytes(record), order.tolist(), strict=True):
            put(key, payloads[row])
        self._db.write(batch, self._no_wal)

    def probe(self, side: int, keys: Keys, ts: npt.NDArray[np.int64], lower: int, upper: int) -> Matches:
        """Rows of `side` with an equal key and lower <= row.ts - ts <= upper."""
        record, order = self._sorted(side, keys, ts)
        exact = ts[order]
        record["ts"], record["seq"] = _ordered(_shifted(exact, lower)), 0
        starts = _as_bytes(record)
        record["ts"], record["seq"] = _ordered(_shifted(exact, upper)), _LAST_SEQ
        cursor = self._db.iter(ReadOptions())
        seek, key, value, step = cursor.seek, cursor.key, cursor.value, cursor.next
        found: list[int] = []
        payloads: list[bytes] = []
        for row, start, end in zip(order.tolist(), starts, _as_bytes(record), strict=True):
            seek(start)
            at = key()
            while at is not None and at <= end:
                found.append(row)
                payloads.append(value())
                step()
                at = key()
        cursor.status()
        return Matches(len(payloads), np.array(found, np.int64), payloads)

    def commit(self) -> None:
        """Make the epoch durable: a checkpoint in a new directory, then drop the one before."""
        self._epoch += 1
        before, self._checkpoint = self._checkpoint, self._path / f"epoch-{self._epoch:08d}"
        Checkpoint(self._db).create_checkpoint(str(self._checkpoint))
        directory = os.open(self._path, os.O_RDONLY)  # RocksDB syncs what is in it, not its name
        os.fsync(directory)
        os.close(directory)
        if before:
            shutil.rmtree(before)

    def settle(self) -> None:
        """Wait until RocksDB compacts no more, so that its threads do not run in another engine's time."""
        quiet = 0
        while quiet < 3:
            running = self._db.property_int_value("rocksdb.num-running-compactions")
            quiet = 0 if running else quiet + 1
            time.sleep(0.01)

    def close(self) -> None:
        self._db.close()

    def _sorted(
        self, side: int, keys: Keys, ts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
        """Records without seq in the order of their keys, and which row each came from."""
        record = np.empty(len(ts), self._record)
        record["side"] = side
        if self._key_bytes is None:
            ints = np.asarray(keys, np.int64)
            order = np.argsort(ints.view(np.uint64))
            record["key"] = ints[order]
        else:
            sizes = np.fromiter(map(len, keys), np.int64, len(ts))
            if sizes.max(initial=0) > min(self._key_bytes, 255):
                raise ValueError(f"a key is wider than the {self._key_bytes} bytes this state was opened with")
            texts = np.array(keys, record.dtype["key"])
            order = np.argsort(texts)
            record["key"], record["size"] = texts[order], sizes[order]
        record["ts"] = _ordered(ts[order])
        return record, order


def pack_payloads(batch: pa.RecordBatch) -> list[bytes]:
    """The non-key columns of the workload's rows as bytes: amount, then tag."""
    amounts = batch.column("amount").to_numpy().view("V8").tolist()
    tags = batch.column("tag").cast(pa.binary()).to_pylist()
    return [amount + tag for amount, tag in zip(amounts, tags, strict=True)]


def _options(key_bytes: int) -> Options:
    table = PlainTableFactoryOptions()
    table.user_key_length = key_bytes
    table.bloom_bits_per_key = 10
    table.hash_table_ratio = 0.75
    table.index_sparseness = 16
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.increase_parallelism(2)
    options.set_plain_table_factory(table)
    options.set_allow_mmap_reads(True)
    options.set_prefix_extractor(SliceTransform.create_fixed_prefix(key_bytes - 16))
    options.set_write_buffer_size(128 << 20)
    options.set_max_bytes_for_level_base(64 << 20)
    options.set_max_open_files(-1)
    return options


def _as_bytes(record: npt.NDArray[np.void]) -> list[bytes]:
    rows: list[bytes] = record.view(f"V{record.dtype.itemsize}").tolist()  # slices of tobytes() take 2.5 times it
    return rows


def _ordered(ts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Times whose unsigned bytes sort as the signed times do."""
    return ts.view(np.uint64) ^ np.uint64(1 << 63)


def _shifted(ts: npt.NDArray[np.int64], by: int) -> npt.NDArray[np.int64]:
    """ts + by, held at the ends of the range."""
    return np.minimum(ts, _MAX_TS - by) + by if by >= 0 else np.maximum(ts, _MIN_TS - by) + by
