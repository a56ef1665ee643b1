"""Rows of an SSTable, picked by place or by join key, as JSON-able values.

A row lies in a run sorted by (hash, ts, id), so rows come in that order, run by run. A run whose bytes are damaged
is named with the reason, and the others are still shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lsmstate.cli.key_text import key_array
from lsmstate.cli.values import plain_values
from lsmstate.cli.wording import plainly
from lsmstate.errors import CorruptionError
from lsmstate.hashing import hash_keys
from lsmstate.hashing.sameness import same_keys
from lsmstate.keys import I64
from lsmstate.schema import Side
from lsmstate.sstable.reader import SSTable, StoredRun

KeyValues = dict[str, str]  # by key column, as typed


def pick_rows(table: SSTable, most: int, keys: Sequence[str]) -> dict[str, Any]:
    """At most `most` rows; those with a join key where `keys` is not empty."""
    wanted = {number: arrays for number, side in table.sides.items() if (arrays := key_arrays(side, keys))}
    if keys and not wanted:
        raise argparse.ArgumentError(None, f"--key does not fit {_known_keys(table)}")
    shown: list[dict[str, Any]] = []
    unreadable: list[dict[str, Any]] = []
    found = 0
    for number, run in enumerate(table.runs):
        if keys and run.ref.side not in wanted:
            continue
        try:
            rows = _with_key(run, table.sides[run.ref.side], wanted[run.ref.side]) if keys else None
            found += run.ref.rows if rows is None else len(rows)
            left = most - len(shown)
            if left > 0:
                shown += _values(table, number, run, np.arange(run.ref.rows)[:left] if rows is None else rows[:left])
        except (CorruptionError, pa.ArrowException) as error:
            unreadable.append({"run": number, "error": plainly(str(error), table.path)})
    total = sum(run.ref.rows for run in table.runs)
    return {"key": list(keys), "total": total, "found": found, "shown": shown, "unreadable": unreadable}


def _with_key(run: StoredRun, side: Side, arrays: Sequence[pa.Array]) -> I64:
    """The rows with a key: the hash leads to candidates, the key columns decide."""
    if not run.span.low <= int(hash_keys(arrays)[0]) <= run.span.high:
        return np.empty(0, np.int64)
    rows = np.flatnonzero(run.hashes() == hash_keys(arrays)[0])
    for name, array in zip(side.keys, arrays, strict=True):
        column = run.column(side.schema.get_field_index(name), rows)
        rows = rows[same_keys(column, array.take(np.zeros(len(rows), np.int64)))]
    return rows


def _values(table: SSTable, number: int, run: StoredRun, rows: I64) -> list[dict[str, Any]]:
    side = table.sides[run.ref.side]
    columns = [
        plain_values(run.column(at, rows), is_time=field.name == side.time) for at, field in enumerate(side.schema)
    ]
    numbers = zip(run.ids(rows).tolist(), run.times(rows).tolist(), run.hashes(rows).tolist(), strict=True)
    return [
        {
            "run": number,
            "side": run.ref.side,
            "id": row_id,
            "ts_us": ts,
            "hash": f"{row_hash:016x}",
            "values": dict(zip(side.schema.names, row, strict=True)),
        }
        for (row_id, ts, row_hash), row in zip(numbers, zip(*columns, strict=True), strict=True)
    ]


def key_arrays(side: Side, keys: Sequence[str]) -> list[pa.Array] | None:
    """The typed key as arrays of one value; None where it cannot be a key of the side."""
    typed = _by_name(side, keys)
    if typed is None:
        return None
    arrays = []
    for name in side.keys:
        try:
            arrays.append(key_array(typed[name], side.schema.field(name).type))
        except ValueError:
            return None
    return arrays


def _by_name(side: Side, keys: Sequence[str]) -> KeyValues | None:
    """`NAME=VALUE` for every key column; or, without names, the one value, or all of them with commas between."""
    named = [key.partition("=") for key in keys]
    if all(equals and name in side.keys for name, equals, _ in named) and len(named) == len(side.keys):
        typed = {name: value for name, _, value in named}
        return typed if len(typed) == len(side.keys) else None
    if len(keys) != 1:
        return None
    parts = [keys[0]] if len(side.keys) == 1 else keys[0].split(",")
    return dict(zip(side.keys, parts, strict=True)) if len(parts) == len(side.keys) else None


def _known_keys(table: SSTable) -> str:
    parts = []
    for side in table.sides.values():
        columns = ", ".join(f"{name} ({side.schema.field(name).type})" for name in side.keys)
        parts.append(f"the key of {side.name!r}: {columns}")
    return f"{'; '.join(parts)}. Give --key VALUE, --key VALUE,VALUE or --key NAME=VALUE for each column"
