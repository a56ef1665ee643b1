"""All that an SSTable says of itself, as a JSON-able report: what `lsmstate dump` shows, without the rows."""

from __future__ import annotations

import os.path
from typing import Any

import numpy as np

from lsmstate.engine.verify import STUMBLES, problems_of
from lsmstate.errors import CorruptionError
from lsmstate.keys import bucket_end, bucket_start
from lsmstate.schema import Side
from lsmstate.sstable.filters import BLOOM_K, KeyFilter
from lsmstate.sstable.format import BLOCK, FOOTER_BYTES, uid_of
from lsmstate.sstable.reader import SSTable, StoredRun
from lsmstate.sstable.trees import bytes_of

_SECTIONS = ("bloom", "directory", "hash", "time", "id")


def describe(table: SSTable) -> dict[str, Any]:
    """The report of an open SSTable."""
    footer = table.footer
    runs = [_run(table, number, run) for number, run in enumerate(table.runs)]
    return {
        "schema": "lsmstate.dump/1",
        "path": table.path,
        "format": footer.version,
        "block_bytes": BLOCK,
        "uid": footer.uid.hex(),
        "digest": table.digest,
        "has_own_name": uid_of(os.path.basename(table.path)) == footer.uid,
        "epoch": table.epoch,
        "sizes": {
            "file_bytes": footer.file_bytes,
            "data_bytes": footer.data_bytes,
            "index_bytes": footer.index_bytes,
            "sums_bytes": footer.sums_bytes,
            "filter_bytes": footer.filter_bytes,
            "footer_bytes": FOOTER_BYTES,
        },
        "sides": [_side(table, number, side, runs) for number, side in sorted(table.sides.items())],
        "runs": runs,
        "key_filter": {"bytes": footer.filter_bytes, **_key_filter(table.key_filter)},
        "checks": _checks(table),
    }


def _run(table: SSTable, number: int, run: StoredRun) -> dict[str, Any]:
    ref, side, told = run.ref, table.sides[run.ref.side], table.index["runs"][number]
    sections = {name: [int(told[name][0]), int(told[name][1])] for name in _SECTIONS}
    columns = {field.name: _column_bytes(told, at) for at, field in enumerate(side.schema) if field.name != side.time}
    return {
        "number": number,
        "side": ref.side,
        "side_name": side.name,
        "first_bucket": ref.first_bucket,
        "last_bucket": ref.last_bucket,
        "start_us": bucket_start(ref.first_bucket, side.bucket_us),
        "end_us": bucket_end(ref.last_bucket, side.bucket_us),
        "rows": ref.rows,
        "min_ts_us": ref.min_ts,
        "max_ts_us": ref.max_ts,
        "min_id": ref.min_id,
        "max_id": ref.max_id,
        "min_hash": f"{run.span.low:016x}",
        "max_hash": f"{run.span.high:016x}",
        "sections": sections,
        "columns_bytes": columns,
        "bytes": sum(length for _, length in sections.values()) + sum(b or 0 for b in columns.values()),
        "bloom": _bloom(run),
    }


def _bloom(run: StoredRun) -> dict[str, Any]:
    """How full the filter is, and which share of absent hashes it lets through."""
    try:
        words = run.bloom()
    except CorruptionError as error:
        return {"bits": None, "fill": None, "false_positive_rate": None, "error": str(error)}
    filled = np.bitwise_count(words) / 64
    return {
        "bits": 64 * len(words),
        "fill": float(filled.mean()),
        "false_positive_rate": float((filled**BLOOM_K).mean()),
        "error": None,
    }


def _column_bytes(told: dict[str, Any], at: int) -> int | None:
    """The bytes of a column; None where the index is no longer one."""
    try:
        return bytes_of(told["columns"][at])
    except STUMBLES:
        return None


def _nulls(told: dict[str, Any], at: int) -> int | None:
    try:
        return int(told["columns"][at]["nulls"])
    except STUMBLES:
        return None


def _side(table: SSTable, number: int, side: Side, runs: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [run for run in runs if run["side"] == number]
    told = [table.index["runs"][run["number"]] for run in mine]
    columns = []
    for at, field in enumerate(side.schema):
        role = "key" if field.name in side.keys else "time" if field.name == side.time else None
        if role == "time":
            sizes: list[int | None] = [run["sections"]["time"][1] for run in mine]
            nulls: list[int | None] = [0]
        else:
            sizes = [run["columns_bytes"][field.name] for run in mine]
            nulls = [_nulls(run, at) for run in told]
        columns.append(
            {
                "name": field.name,
                "type": str(field.type),
                "nullable": field.nullable,
                "role": role,
                "nulls": _sum(nulls),
                "bytes": _sum(sizes),
            }
        )
    return {
        "number": number,
        "name": side.name,
        "keys": list(side.keys),
        "time": side.time,
        "retention_us": side.retention_us,
        "bucket_us": side.bucket_us,
        "schema_id": side.schema_id,
        "rows": sum(run["rows"] for run in mine),
        "runs": len(mine),
        "min_ts_us": min((run["min_ts_us"] for run in mine), default=None),
        "max_ts_us": max((run["max_ts_us"] for run in mine), default=None),
        "columns": columns,
    }


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _key_filter(keys: KeyFilter) -> dict[str, Any]:
    told: dict[str, Any] = {"exists": keys.exists, "keys": None, "error_rate": None, "error": None}
    try:
        if keys.exists:
            told["keys"], rate = keys.keys, keys.error_rate
            told["error_rate"] = rate if 0 <= rate <= 1 else None
    except CorruptionError as error:
        told["error"] = str(error)
    return told


def _checks(table: SSTable) -> dict[str, Any]:
    return {
        "blocks": table.footer.sums_bytes // 8,
        "bad_blocks": table.blocks.bad_blocks(),
        "problems": list(problems_of(table)),
    }
