"""The peer: the state of a stream join on RocksDB through rocksdict, as fast as we could make it from Python.

A row lies at `[side 1B | join key | ts 8B | seq 8B]`, big endian, its payload (the other columns, packed) as
the value. String keys are padded to a fixed width with their size behind, so that every key has one length.
Its callers pack and pass bytes, outside the timed part if they like: that favours the peer.

Each choice was measured against the best setup of its moment, mostly in turns, on two noisy cores. An epoch is append
100k, probe 100k, commit; a ratio is of epochs at 1M / 10M int rows, above 1 where the alternative is slower.
- table: mapped PlainTable, hashed by prefix. Block-based (16 KB, 2 GiB cache, prefix bloom): 1.1 to 1.2 / 1.6;
  lz4 no faster there. PlainTable keeps no checksums of rows: that favours the peer too.
- append: a WriteBatch without WAL, keys sorted (unsorted 1.07), then a flush begun on the other core (left to
  the commit: 1.06 when that core is free, 0.95 when not). Single puts take twice as long. SstFileWriter and
  ingest: refused by PlainTable, 1.05 / 1.3 with block-based.
- probe: one iterator, a seek per row in key order. `items(from_key=)` per row: 1.5 of the probe. Scanning all
  costs as much at 1M rows and grows with the state. multi-get needs whole keys; with a list of rows per key it
  makes the probe 0.7 to 0.8, but append must read first: 1.15 in all at 1M, and quadratic on hot keys.
- commit: a checkpoint. A synced WAL commits in 3 ms but costs more than it saves in append and probe: 1.2 /
  1.25; and rows not committed would have to be undone after a crash.
- memtables of 64 MB with a prefix bloom (without: 1.1 at 1M); first level 64 MB (256 MB: 0.96 / 1.1).
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import rocksdict

Keys = npt.NDArray[np.int64] | list[bytes]

_MIN_TS, _MAX_TS = -(2**63), 2**63 - 1
_LAST_SEQ = 2**64 - 1
_FLUSH_ROWS = 50_000  # from this many rows on a batch is worth a table of its own


@dataclass(frozen=True, slots=True)
class Matches:
    """One entry per match: which probe row found it, and the payload it found."""

    count: int
    probe_index: npt.NDArray[np.int64]
    payloads: list[bytes]


class RocksJoinState:
    """Rows of both sides of a join, found by key and time. One thread at a time."""

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
        self._db = rocksdict.Rdict(str(self._live), _options(self._record.itemsize))
        self._seq = self._db.latest_sequence_number()  # one a row, kept by RocksDB: never given twice
        self._no_wal = rocksdict.WriteOptions()
        # the stub of rocksdict calls this a method: it is a property
        self._no_wal.disable_wal = True  # type: ignore[assignment, method-assign]

    def append(self, side: int, keys: Keys, ts: npt.NDArray[np.int64], payloads: list[bytes]) -> npt.NDArray[np.void]:
        """Add a batch of rows, seen by every probe from now on and durable with the next `commit`.

        Gives what `delete` needs to remove them again, for callers that remember it: RocksDB has no order by time.
        """
        record, order = self._sorted(side, keys, ts)
        record["seq"] = order + self._seq
        self._seq += len(ts)
        batch = rocksdict.WriteBatch(raw_mode=True)
        put = batch.put
        for key, row in zip(_as_bytes(record), order.tolist(), strict=True):
            put(key, payloads[row])
        self._db.write(batch, self._no_wal)
        if len(ts) >= _FLUSH_ROWS:
            self._db.flush(wait=False)
        return record

    def delete(self, record: npt.NDArray[np.void]) -> None:
        """Remove rows that have expired."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        delete = batch.delete
        for key in _as_bytes(record):
            delete(key)
        self._db.write(batch, self._no_wal)

    def probe(self, side: int, keys: Keys, ts: npt.NDArray[np.int64], lower: int, upper: int) -> Matches:
        """Rows of `side` with an equal key and lower <= row.ts - ts <= upper."""
        record, order = self._sorted(side, keys, ts)
        exact = ts[order]
        record["ts"], record["seq"] = _ordered(_shifted(exact, lower)), 0
        starts = _as_bytes(record)
        record["ts"], record["seq"] = _ordered(_shifted(exact, upper)), _LAST_SEQ
        within_key = rocksdict.ReadOptions()
        within_key.set_prefix_same_as_start(True)
        cursor = self._db.iter(within_key)
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
        """Make the epoch durable: a checkpoint in a new directory, then drop the one before.

        It flushes what is still in memory, syncs tables and manifest, links them into a temporary directory
        and renames that (seen with strace): a crash leaves this epoch or the one before, never part of one.
        """
        self._epoch += 1
        before, self._checkpoint = self._checkpoint, self._path / f"epoch-{self._epoch:08d}"
        rocksdict.Checkpoint(self._db).create_checkpoint(str(self._checkpoint))
        directory = os.open(self._path, os.O_RDONLY)  # RocksDB syncs what is in it, not its name
        os.fsync(directory)
        os.close(directory)
        if before:
            shutil.rmtree(before)

    def settle(self) -> None:
        """Wait until RocksDB flushes and compacts no more, so that its threads do not run in another engine's time."""
        quiet = 0
        while quiet < 3:
            running = (self._db.property_int_value(f"rocksdb.num-running-{w}") for w in ("flushes", "compactions"))
            quiet = 0 if any(running) else quiet + 1
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


def _options(key_bytes: int) -> rocksdict.Options:
    table = rocksdict.PlainTableFactoryOptions()
    table.user_key_length = key_bytes
    table.bloom_bits_per_key = 10
    table.hash_table_ratio = 0.75
    table.index_sparseness = 16
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.increase_parallelism(2)
    options.set_plain_table_factory(table)
    options.set_allow_mmap_reads(True)
    options.set_prefix_extractor(rocksdict.SliceTransform.create_fixed_prefix(key_bytes - 16))
    options.set_write_buffer_size(64 << 20)
    options.set_memtable_prefix_bloom_ratio(0.02)
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
