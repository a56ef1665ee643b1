"""A small state on the real disk for the command line, and files that lie with right checksums."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from lsmstate import Options, Side, StateStore
from lsmstate.manifest.codec import decode, encode
from lsmstate.sstable.blocks import block_seed
from lsmstate.sstable.format import BLOCK, FOOTER_BYTES, Footer, meta_sum, pack_footer, unpack_footer

START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
SECOND_US = 1_000_000
STEP_US = 100_000
EPOCHS = 4

ADS = Side(
    "ads",
    pa.schema([("ad_id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("title", pa.string())]),
    keys=["ad_id"],
    time="ts",
    retention=timedelta(minutes=10),
)
CLICKS = Side(
    "clicks",
    pa.schema([("at", pa.int64()), ("shop", pa.string()), ("number", pa.int64()), ("price", pa.float64())]),
    keys=["shop", "number"],
    time="at",
)


def ads(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "ad_id": [None if n % 10 == 9 else n % 250 for n in numbers],
            "ts": [START_US + n * STEP_US for n in numbers],
            "title": [None if n % 4 == 3 else f"ad {n}" for n in numbers],
        },
        schema=ADS.schema,
    )


def clicks(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "at": [START_US + n * STEP_US + 7 for n in numbers],
            "shop": [f"shop-{n % 3}" for n in numbers],
            "number": [n % 5 for n in numbers],
            "price": [n / 4 for n in numbers],
        },
        schema=CLICKS.schema,
    )


def build(path: Path) -> Path:
    """Four epochs of 1000 ads and 500 clicks each; 20 seconds of ads are removed, and the watermark moves."""
    with StateStore.open(path, sides=[ADS, CLICKS], options=Options(auto_compact=False)) as store:
        for epoch in range(1, EPOCHS + 1):
            store.append(0, ads(epoch * 1000, 1000))
            store.append(1, clicks(epoch * 500, 500))
            store.advance_watermark(START_US + epoch * 100 * SECOND_US)
            if epoch == 3:
                store.remove(0, START_US + 200 * SECOND_US, START_US + 220 * SECOND_US)
            store.snapshot_epoch(epoch, meta={"batch": epoch})
    return path


def newest_file(state: Path) -> Path:
    return max((state / "sst").iterdir())


def damage(path: Path, at: int) -> None:
    """Flips the bits of one byte of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def rewrite_index(path: Path, change: Any) -> None:
    """Changes the index of an SSTable, and makes all checksums right again."""
    content = path.read_bytes()
    footer = unpack_footer(str(path), memoryview(content))
    data = content[: footer.data_bytes]
    runs, _, described = content[footer.data_bytes :][: footer.index_bytes].partition(b"\n")
    index = json.loads(runs)
    keys = content[footer.data_bytes + footer.index_bytes + footer.sums_bytes : -FOOTER_BYTES]
    change(index)
    text = json.dumps(index).encode() + b"\n" + described
    text += b" " * (-len(text) % 8)
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    sums = np.array([xxhash.xxh3_64_intdigest(b, seed=block_seed(footer.uid, n)) for n, b in enumerate(blocks)], "<u8")
    meta = text + sums.tobytes() + keys
    tail = Footer(footer.uid, len(data), len(text), sums.nbytes, len(keys), meta_sum(footer.uid, meta), footer.version)
    path.write_bytes(data + meta + pack_footer(tail))


def rewrite_manifest(state: Path, name: str, change: Any) -> None:
    """Changes the document of a manifest under all its names, and makes its checksum right again."""
    path = state / "manifest" / name
    own, body = decode(str(path), path.read_bytes())
    change(body)
    for each in {path, state / "manifest" / own}:
        each.unlink()
        each.write_bytes(encode(own, body))


def head(state: Path) -> str:
    return max(path.name for path in (state / "manifest").glob("head-*"))
